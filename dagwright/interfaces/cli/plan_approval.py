"""Ask the user at the terminal for approval of a plan that a model wrote; the user can edit the plan."""

import asyncio
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from dagwright.client.errors import FeedbackRejected
from dagwright.client.feedback.open_requests import Answer, RequestRef, requests_in
from dagwright.interfaces.cli.command_arguments import account_name
from dagwright.interfaces.cli.input_prompts import NO, YES
from dagwright.interfaces.cli.output import Output, one_line
from dagwright.planning.plan_and_execute.goal_spec import APPROVE, is_reserved, role_of

if TYPE_CHECKING:
    from dagwright.client.runs import Runs
    from dagwright.history.run_view import RunView

EDIT = frozenset({"e", "edit"})


async def approve_on_terminal(runs: "Runs", run_id: str, output: Output) -> None:
    """Wait for the plan of a run and ask for approval; return when the plan runs or the run has ended."""
    output.print("the model is planning…")
    answered_ids: set[str] = set()
    async for view in runs.reader(run_id).follow():
        for request in requests_in(view):
            if _is_about_plan(request["node_id"]) and request["request_id"] not in answered_ids:
                answered_ids.add(request["request_id"])
                output.print(request["prompt"])
                content = await _ask_approval(_approval_arguments(view, request["node_id"]), output)
                try:
                    request_ref = RequestRef(run_id, request["request_id"])
                    output.print(await runs.feedback.answer(request_ref, Answer(content, account_name())))
                except FeedbackRejected as rejection:
                    output.log(one_line(str(rejection)))
        if view.is_closed or _has_started(view):
            return


def _is_about_plan(node_id: str) -> bool:
    return role_of(node_id) == APPROVE


def _has_started(view: "RunView") -> bool:
    scheduler = view.scheduler
    return scheduler is not None and any(not is_reserved(node.id) for node, _ in scheduler.state.visible_nodes())


def _approval_arguments(view: "RunView", node_id: str) -> dict[str, Any]:
    """Return the arguments of the node that requests approval: the plan and its limits."""
    assert view.scheduler is not None
    number = view.scheduler.state.number_of(node_id)
    assert number is not None
    return dict(view.scheduler.plan.nodes[number].arguments)


async def _ask_approval(arguments: dict[str, Any], output: Output) -> dict[str, Any]:
    while True:
        sys.stdout.write("Run this plan? (yes, no or edit): ")
        sys.stdout.flush()
        reply = await _read_line()
        if reply is None or reply in NO:
            return {"approved": False}
        if reply in YES:
            return {"approved": True}
        if reply in EDIT and (plan := await _edit_plan(arguments["plan"], output)) is not None:
            return {"approved": True, "arguments": {**arguments, "plan": plan}}


async def _read_line() -> str | None:
    """Return the next line, or `None` at the end of the input, without blocking the loop that serves the tools."""
    loop = asyncio.get_running_loop()
    input_event = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), input_event.set)
    try:
        await input_event.wait()
    finally:
        loop.remove_reader(sys.stdin.fileno())
    line = sys.stdin.buffer.readline().decode(errors="replace")
    return line.strip().lower() if line else None


async def _edit_plan(plan: Any, output: Output) -> Any:
    """Let the user edit the plan in a file; return the edited plan, or `None` for an unchanged or unreadable file."""
    text = json.dumps(plan, indent=2, ensure_ascii=False)
    with TemporaryDirectory(prefix="dagwright-") as folder:
        file = Path(folder) / "plan.json"
        file.write_text(text, encoding="utf-8")
        output.print(f"edit the plan in {file}, then press Enter")
        await _read_line()
        try:
            edited_text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            output.log(f"{file} cannot be read: {error}")
            return None
    if edited_text.strip() == text:
        return None
    try:
        return json.loads(edited_text)
    except ValueError:
        # The run parses invalid JSON like a model's response, and reports the problems.
        return edited_text
