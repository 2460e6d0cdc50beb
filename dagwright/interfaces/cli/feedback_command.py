"""`feedback`: answer a request of a run."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from dagwright.client.feedback.answer_sending import (
    AnswerOutcome,
    AnswerTarget,
    AnswerUnclear,
    NoOpenRequest,
    choose_requests,
    next_request,
    send_answer,
)
from dagwright.client.feedback.namespace_requests import NamespaceRequests
from dagwright.client.feedback.open_requests import Answer, OpenRequest, RequestRef
from dagwright.client.runs import open_runs
from dagwright.client.steering import Steering
from dagwright.core.errors import PlanInvalid
from dagwright.history.run_reader import RunReader
from dagwright.interfaces.cli.answer_prompts import ask_answer
from dagwright.interfaces.cli.async_runs import InterruptHandling, run_async
from dagwright.interfaces.cli.command_arguments import author_name
from dagwright.interfaces.cli.command_connection import command_settings, connected
from dagwright.interfaces.cli.exit_codes import CommandRefused, ExitCode, Refusal
from dagwright.interfaces.cli.output import Output, acted
from dagwright.interfaces.cli.people_commands import AnswerRequest
from dagwright.interfaces.cli.plan_input import json_of
from dagwright.interfaces.cli.request_text import answer_command, field_lines, following_lines, listed, request_line
from dagwright.interfaces.cli.run_changes import nodes_in, print_invalid
from dagwright.server import Connection
from dagwright.toolset.tool_directory import publish_cards
from dagwright.toolset.toolset import load_toolset

_OPTION_OF: Mapping[str, str] = {
    "APPROVAL": "--approve or --reject",
    "SELECTION": "--select OPTION",
    "GUIDANCE": "--text TEXT",
    "CLARIFICATION": "--text TEXT",
    "INFORMATION": "--data JSON",
}


def options_for(kind: str) -> str:
    """Return the options of `feedback` that answer a request of this type."""
    return _OPTION_OF.get(kind, "--data JSON")


def answer_of(request: AnswerRequest) -> dict[str, Any] | None:
    """Return the answer that the options give, without its nodes; `None` if they give no answer.

    Raises:
        CommandRefused: options contradict each other, or a value is invalid JSON.
    """
    options = {
        "--approve": request.is_approved,
        "--reject": request.is_rejected,
        "--select": bool(request.selected),
        "--text" if request.nodes is None else "--nodes": request.text is not None or request.nodes is not None,
        "--data": request.data is not None and not request.selected,
    }
    kinds = [name for name, is_given in options.items() if is_given]
    if len(kinds) > 1:
        raise CommandRefused(f"{' and '.join(kinds)} contradict each other: give one answer")
    kind = kinds[0] if kinds else None
    _refuse_other_options(kind, request)
    changed = {} if request.arguments is None else {"arguments": _object(request.arguments, option="--arguments")}
    reason = {} if request.reason is None else {"reason": request.reason}
    match kind:
        case "--approve":
            return {"approved": True, **reason, **changed, **({"remember": True} if request.is_remembered else {})}
        case "--reject":
            return {"approved": False, **reason}
        case "--select":
            value = {} if request.data is None else {"value": json_of(request.data, option="--data")}
            return {"selected": [*request.selected], **value, **changed}
        case "--text" | "--nodes":
            return {"text": request.text or ""}
        case "--data":
            return {"data": json_of(request.data or "", option="--data")}
    return None


def _refuse_other_options(kind: str | None, request: AnswerRequest) -> None:
    """Refuse options that belong to an answer of another kind."""
    if request.arguments is not None and kind not in ("--approve", "--select"):
        raise CommandRefused("--arguments needs --approve, or --select retry")
    if request.is_remembered and kind != "--approve":
        raise CommandRefused("--remember needs --approve")
    if request.reason is not None and kind not in ("--approve", "--reject"):
        raise CommandRefused("--reason needs --approve or --reject; --note works with every answer")


def _object(text: str, *, option: str) -> dict[str, Any]:
    value = json_of(text, option=option)
    if not isinstance(value, dict):
        raise CommandRefused(f"{option} must be a JSON object, not {text!r:.80}")
    return value


_LISTED = 20


def feedback(request: AnswerRequest, output: Output) -> int:
    """Answer a request of a run and report the outcome.

    Returns:
        0 if the answer was accepted; 2 if it was refused or the run has ended.

    Raises:
        CommandRefused: the options give no answer, or the request is ambiguous.
    """
    if request.nodes is None:
        return _feedback(request, [], output)
    try:
        return _feedback(request, nodes_in(request.nodes), output)
    except PlanInvalid as invalid:
        return print_invalid(request.nodes, invalid, output)


def _feedback(request: AnswerRequest, nodes: Sequence[Any], output: Output) -> int:
    # Invalid options are reported before a server is contacted.
    content = answer_of(request)
    settings = command_settings()
    requests: list[OpenRequest] = []
    targets: list[AnswerTarget] = []

    async def look(_: InterruptHandling) -> int:
        async with connected(settings, output) as connection:
            feedback = NamespaceRequests(connection, partial(RunReader, connection.client))
            requests.extend(await feedback.requests_of(request.workflow_id))
        return ExitCode.COMPLETED

    async def send(_: InterruptHandling) -> int:
        async with connected(settings, output) as connection:
            answer = Answer(content, author_name(request.by), request.note)
            extras = partial(_nodes_for, connection, request.workflow_id, nodes)
            feedback = NamespaceRequests(connection, partial(RunReader, connection.client))
            outcome = await send_answer(feedback, targets[0], answer, extras=extras)
            again = await next_request(feedback, outcome)
        return _print_outcome(outcome, request, output, again=again)

    if content is None or request.request is None or request.is_for_all:
        if (code := run_async(look, output)) != ExitCode.COMPLETED:
            return code
        chosen = _chosen(request, requests)
        if nodes and len(chosen) > 1:
            names_of_all = listed([open_request.document for open_request in chosen], limit=_LISTED)
            raise CommandRefused(f"nodes can be added only once; answer one of {names_of_all} with --nodes")
        targets.append(AnswerTarget.of(request.workflow_id, chosen))
        # Outside the event loop, where Ctrl-C would wait for the end of the form.
        content = content or _from_form(chosen, output)
    else:
        targets.append(AnswerTarget(request.workflow_id, request.request))
    return run_async(send, output)


async def _nodes_for(
    connection: Connection, workflow_id: str, nodes: Sequence[Any], request_ref: RequestRef
) -> Mapping[str, Any]:
    if not nodes:
        return {}
    settings = command_settings()
    references = await open_runs(connection, settings).tools_of(workflow_id)
    toolset = load_toolset(settings, references)
    await publish_cards(toolset.store, toolset.agents)
    tools = toolset.declarations()
    return await Steering(connection).nodes_of_answer(request_ref, nodes, tools=tools)


def _print_outcome(
    outcome: AnswerOutcome, request: AnswerRequest, output: Output, *, again: Mapping[str, Any] | None
) -> ExitCode:
    message = outcome.message
    if again is not None:
        message += f"; new request: {request_line(again)}"
    if outcome.is_ambiguous:
        message += "; `--all` answers all of them"
    if output.is_json:
        output.document(acted(request.workflow_id, message, ok=outcome.is_accepted))
    elif outcome.is_accepted:
        output.print(message)
        for line in [*following_lines(again), answer_command(again)] if again is not None else ():
            output.print(f"  {line}")
    if not outcome.is_accepted:
        output.log(message)
    return ExitCode.COMPLETED if outcome.is_accepted else ExitCode.REFUSED


def _chosen(request: AnswerRequest, requests: Sequence[OpenRequest]) -> Sequence[OpenRequest]:
    """Return the open requests that the answer is for: one, or all of one node.

    Raises:
        CommandRefused: no request is named and not exactly one is open, or the named one is not open.
    """
    run = f"the run {request.workflow_id!r:.200}"
    try:
        chosen = choose_requests(requests, request.request, of_all=request.is_for_all)
    except NoOpenRequest:
        raise CommandRefused(f"{run} has no open request", status=Refusal.NOT_FOUND) from None
    except AnswerUnclear:
        names = listed([open_request.document for open_request in requests], limit=_LISTED)
        raise CommandRefused(f"{run} has {len(requests):,} open requests; name one: {names}") from None
    if not chosen:
        raise CommandRefused(
            f"{run} has no open request {request.request!r:.200}; to answer in advance, give --approve, --reject, "
            "--select, --text or --data without --all",
            status=Refusal.NOT_FOUND,
        )
    return chosen


def _from_form(requests: Sequence[OpenRequest], output: Output) -> dict[str, Any]:
    """Ask the user at the terminal for the answer.

    Raises:
        CommandRefused: there is no terminal.
    """
    first = requests[0].document
    if not output.can_ask:
        fields = "; ".join(field_lines(first))
        fields_text = f"; its fields: {fields}" if fields else ""
        raise CommandRefused(f"{request_line(first)} (give {options_for(first['type'])}{fields_text})")
    if len(requests) > 1:
        output.print(f"one answer for {listed([open_request.document for open_request in requests], limit=_LISTED)}")
    return ask_answer(first)
