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
from dagwright.client.feedback.feedback_client import FeedbackClient
from dagwright.client.feedback.open_requests import Answer, OpenRequest, RequestRef
from dagwright.client.runs import namespace_runs
from dagwright.client.steering import Steering
from dagwright.core.errors import PlanInvalid
from dagwright.history.run_reader import RunReader
from dagwright.interfaces.cli.answer_prompts import ask_answer
from dagwright.interfaces.cli.command_arguments import author_name
from dagwright.interfaces.cli.command_connection import command_settings, open_command_connection
from dagwright.interfaces.cli.command_loop import InterruptHandling, run_async
from dagwright.interfaces.cli.exit_codes import CommandError, CommandErrorCode, ExitCode
from dagwright.interfaces.cli.output import Output, run_outcome
from dagwright.interfaces.cli.people_commands import AnswerArguments
from dagwright.interfaces.cli.plan_input import parse_json_option
from dagwright.interfaces.cli.request_text import (
    answer_command,
    detail_lines,
    field_lines,
    join_request_ids,
    request_line,
)
from dagwright.interfaces.cli.run_changes import print_invalid_nodes, read_nodes
from dagwright.server import Connection
from dagwright.toolset.tool_directory import publish_cards
from dagwright.toolset.toolset import load_toolset

_OPTIONS_OF_TYPE: Mapping[str, str] = {
    "APPROVAL": "--approve or --reject",
    "SELECTION": "--select OPTION",
    "GUIDANCE": "--text TEXT",
    "CLARIFICATION": "--text TEXT",
    "INFORMATION": "--data JSON",
}


def options_for_type(request_type: str) -> str:
    """Return the options of `feedback` that answer a request of a type."""
    return _OPTIONS_OF_TYPE.get(request_type, "--data JSON")


def answer_of(answer_arguments: AnswerArguments) -> dict[str, Any] | None:
    """Return the answer in the options, except the nodes of `--nodes`; `None` if there is no answer.

    Raises:
        CommandError: options contradict each other, or a value is invalid JSON.
    """
    options = {
        "--approve": answer_arguments.is_approved,
        "--reject": answer_arguments.is_rejected,
        "--select": bool(answer_arguments.selected),
        "--text" if answer_arguments.nodes is None else "--nodes": answer_arguments.text is not None
        or answer_arguments.nodes is not None,
        "--data": answer_arguments.data is not None and not answer_arguments.selected,
    }
    used_options = [name for name, is_used in options.items() if is_used]
    if len(used_options) > 1:
        raise CommandError(f"{' and '.join(used_options)} contradict each other: give one answer")
    answer_option = used_options[0] if used_options else None
    _reject_other_options(answer_option, answer_arguments)
    new_arguments = (
        {}
        if answer_arguments.arguments is None
        else {"arguments": _parse_object(answer_arguments.arguments, option="--arguments")}
    )
    reason = {} if answer_arguments.reason is None else {"reason": answer_arguments.reason}
    match answer_option:
        case "--approve":
            return {
                "approved": True,
                **reason,
                **new_arguments,
                **({"remember": True} if answer_arguments.is_remembered else {}),
            }
        case "--reject":
            return {"approved": False, **reason}
        case "--select":
            value = (
                {}
                if answer_arguments.data is None
                else {"value": parse_json_option(answer_arguments.data, option="--data")}
            )
            return {"selected": [*answer_arguments.selected], **value, **new_arguments}
        case "--text" | "--nodes":
            return {"text": answer_arguments.text or ""}
        case "--data":
            return {"data": parse_json_option(answer_arguments.data or "", option="--data")}
    return None


def _reject_other_options(answer_option: str | None, answer_arguments: AnswerArguments) -> None:
    """Reject options that belong to another kind of answer."""
    if answer_arguments.arguments is not None and answer_option not in ("--approve", "--select"):
        raise CommandError("--arguments needs --approve, or --select retry")
    if answer_arguments.is_remembered and answer_option != "--approve":
        raise CommandError("--remember needs --approve")
    if answer_arguments.reason is not None and answer_option not in ("--approve", "--reject"):
        raise CommandError("--reason needs --approve or --reject; --note works with every answer")


def _parse_object(text: str, *, option: str) -> dict[str, Any]:
    value = parse_json_option(text, option=option)
    if not isinstance(value, dict):
        raise CommandError(f"{option} must be a JSON object, not {text!r:.80}")
    return value


_MAX_LISTED = 20


def feedback(answer_arguments: AnswerArguments, output: Output) -> int:
    """Answer a request of a run and report the outcome.

    Returns:
        0 if the run accepted the answer; 2 if the run rejected the answer or has ended.

    Raises:
        CommandError: the options give no answer, or the request is ambiguous.
    """
    if answer_arguments.nodes is None:
        return _feedback(answer_arguments, [], output)
    try:
        return _feedback(answer_arguments, read_nodes(answer_arguments.nodes), output)
    except PlanInvalid as invalid:
        return print_invalid_nodes(answer_arguments.nodes, invalid, output)


def _feedback(answer_arguments: AnswerArguments, nodes: Sequence[Any], output: Output) -> int:
    # Invalid options are reported before a server is contacted.
    content = answer_of(answer_arguments)
    settings = command_settings()
    requests: list[OpenRequest] = []
    targets: list[AnswerTarget] = []

    async def read_requests(_: InterruptHandling) -> int:
        async with open_command_connection(settings, output) as connection:
            feedback_client = FeedbackClient(connection, partial(RunReader, connection.client))
            requests.extend(await feedback_client.requests_of(answer_arguments.run_id))
        return ExitCode.COMPLETED

    async def send(_: InterruptHandling) -> int:
        async with open_command_connection(settings, output) as connection:
            answer = Answer(content, author_name(answer_arguments.by), answer_arguments.note)
            read_extra_content = partial(_added_nodes_content, connection, answer_arguments.run_id, nodes)
            feedback_client = FeedbackClient(connection, partial(RunReader, connection.client))
            outcome = await send_answer(feedback_client, targets[0], answer, read_extra_content=read_extra_content)
            following_request = await next_request(feedback_client, outcome)
        return _print_outcome(outcome, answer_arguments, output, following_request=following_request)

    if content is None or answer_arguments.request is None or answer_arguments.is_for_all:
        if (code := run_async(read_requests, output)) != ExitCode.COMPLETED:
            return code
        chosen_requests = _chosen_requests(answer_arguments, requests)
        if nodes and len(chosen_requests) > 1:
            request_ids = join_request_ids([request.document for request in chosen_requests], limit=_MAX_LISTED)
            raise CommandError(f"nodes can be added only once; answer one of {request_ids} with --nodes")
        targets.append(AnswerTarget.of(answer_arguments.run_id, chosen_requests))
        # The dialog is not in the event loop: there, Ctrl-C would take effect only at the end of the dialog.
        content = content or _ask_for_answer(chosen_requests, output)
    else:
        targets.append(AnswerTarget(answer_arguments.run_id, answer_arguments.request))
    return run_async(send, output)


async def _added_nodes_content(
    connection: Connection, run_id: str, nodes: Sequence[Any], request_ref: RequestRef
) -> Mapping[str, Any]:
    if not nodes:
        return {}
    settings = command_settings()
    references = await namespace_runs(connection, settings).tools_of(run_id)
    toolset = load_toolset(settings, references)
    await publish_cards(toolset.store, toolset.agents)
    tools = toolset.declarations()
    return await Steering(connection).nodes_of_answer(request_ref, nodes, tools=tools)


def _print_outcome(
    outcome: AnswerOutcome,
    answer_arguments: AnswerArguments,
    output: Output,
    *,
    following_request: Mapping[str, Any] | None,
) -> ExitCode:
    message = outcome.message
    if following_request is not None:
        message += f"; new request: {request_line(following_request)}"
    if outcome.is_ambiguous:
        message += "; `--all` answers all of them"
    if output.is_json:
        code = None if outcome.is_accepted else CommandErrorCode.ANSWER_REJECTED
        output.document(run_outcome(answer_arguments.run_id, message, code=code))
    elif outcome.is_accepted:
        output.print(message)
        for line in (
            [*detail_lines(following_request), answer_command(following_request)]
            if following_request is not None
            else ()
        ):
            output.print(f"  {line}")
    if not outcome.is_accepted:
        output.log(message)
    return ExitCode.COMPLETED if outcome.is_accepted else ExitCode.REJECTED


def _chosen_requests(answer_arguments: AnswerArguments, requests: Sequence[OpenRequest]) -> Sequence[OpenRequest]:
    """Return the open requests that the answer is for: one request, or all requests of one node.

    Raises:
        CommandError: the named request is not open, no request is open, or several requests are open and the user named
            no request.
    """
    run_text = f"the run {answer_arguments.run_id!r:.200}"
    try:
        chosen_requests = choose_requests(requests, answer_arguments.request, for_all=answer_arguments.is_for_all)
    except NoOpenRequest:
        raise CommandError(f"{run_text} has no open request", code=CommandErrorCode.NO_OPEN_REQUEST) from None
    except AnswerUnclear:
        request_ids = join_request_ids([open_request.document for open_request in requests], limit=_MAX_LISTED)
        raise CommandError(f"{run_text} has {len(requests):,} open requests; name one: {request_ids}") from None
    if not chosen_requests:
        raise CommandError(
            f"{run_text} has no open request {answer_arguments.request!r:.200}; to answer in advance, give --approve, "
            "--reject, --select, --text or --data without --all",
            code=CommandErrorCode.NO_OPEN_REQUEST,
        )
    return chosen_requests


def _ask_for_answer(requests: Sequence[OpenRequest], output: Output) -> dict[str, Any]:
    """Ask the user at the terminal for the answer.

    Raises:
        CommandError: there is no terminal.
    """
    first_request = requests[0].document
    if not output.can_ask:
        fields = "; ".join(field_lines(first_request))
        fields_text = f"; its fields: {fields}" if fields else ""
        options = options_for_type(first_request["type"])
        raise CommandError(f"{request_line(first_request)} (give {options}{fields_text})")
    if len(requests) > 1:
        request_ids = join_request_ids([open_request.document for open_request in requests], limit=_MAX_LISTED)
        output.print(f"one answer for {request_ids}")
    return ask_answer(first_request)
