"""Asks whoever sits at the terminal whether a plan that a model wrote may run; the plan can be changed before."""

import asyncio
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dagwright.client.feedback import Answer, FeedbackRejected, Place, requests_in
from dagwright.client.runs import Runs
from dagwright.history.run_reader import RunView
from dagwright.interfaces.cli.account import account_name
from dagwright.interfaces.cli.asking import NO, YES
from dagwright.interfaces.cli.output import Output, one_line
from dagwright.planning.plan_and_execute.goals import APPROVE, is_own, own_id

EDIT = frozenset({"e", "edit"})


async def approve_on_terminal(runs: Runs, workflow_id: str, output: Output) -> None:
    """Waits for the plan of a run, asks about it, and returns when the plan runs or the run has ended."""
    output.say("the model plans…")
    answered: set[str] = set()
    async for view in runs.feed(workflow_id).follow():
        for request in requests_in(view):
            if _is_about_plan(request["node_id"]) and request["request_id"] not in answered:
                answered.add(request["request_id"])
                output.say(request["prompt"])
                content = await _answer(_arguments(view, request["node_id"]), output)
                try:
                    place = Place(workflow_id, request["request_id"])
                    output.say(await runs.people.answer(place, Answer(content, account_name())))
                except FeedbackRejected as refused:
                    output.tell(one_line(str(refused)))
        if view.is_closed or _has_begun(view):
            return


def _is_about_plan(node: str) -> bool:
    return own_id(node) == APPROVE


def _has_begun(view: RunView) -> bool:
    scheduler = view.scheduler
    return scheduler is not None and any(not is_own(node.id) for node, _ in scheduler.state.shown())


def _arguments(view: RunView, node: str) -> dict[str, Any]:
    """Returns what the node takes that asks: the plan, and what it may use."""
    assert view.scheduler is not None
    number = view.scheduler.state.number_of(node)
    assert number is not None
    return dict(view.scheduler.plan.nodes[number].arguments)


async def _answer(arguments: dict[str, Any], output: Output) -> dict[str, Any]:
    while True:
        sys.stdout.write("May it run? (yes, no or edit): ")
        sys.stdout.flush()
        said = await _typed()
        if said is None or said in NO:
            return {"approved": False}
        if said in YES:
            return {"approved": True}
        if said in EDIT and (plan := await _changed(arguments["plan"], output)) is not None:
            return {"approved": True, "arguments": {**arguments, "plan": plan}}


async def _typed() -> str | None:
    """Returns the next line that is typed, `None` at the end of the input; tools go on being served meanwhile."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(sys.stdin.fileno())
    line = sys.stdin.buffer.readline().decode(errors="replace")
    return line.strip().lower() if line else None


async def _changed(plan: Any, output: Output) -> Any:
    """Returns the plan as somebody changed it in a file; `None` if nothing was changed."""
    text = json.dumps(plan, indent=2, ensure_ascii=False)
    with TemporaryDirectory(prefix="dagwright-") as folder:
        file = Path(folder) / "plan.json"
        file.write_text(text, encoding="utf-8")
        output.say(f"change the plan in {file}, then press Enter")
        await _typed()
        try:
            changed = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            output.tell(f"{file} cannot be read: {error}")
            return None
    if changed.strip() == text:
        return None
    try:
        return json.loads(changed)
    except ValueError:
        # It is read as what a model writes is, and what is wrong with it is told.
        return changed
