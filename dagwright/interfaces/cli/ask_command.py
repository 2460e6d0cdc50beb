"""`ask`: start a run for a request in natural language. A model writes the plan of the run."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dagwright.client.requests import TurnRequest
from dagwright.interfaces.cli.command_connection import command_settings
from dagwright.interfaces.cli.goal_commands import AskRequest
from dagwright.interfaces.cli.model_choice import require_model
from dagwright.interfaces.cli.output import Output
from dagwright.interfaces.cli.plan_approval import approve_on_terminal
from dagwright.interfaces.cli.prepare_request import prepare_and_report_notes, reject_invalid_options
from dagwright.interfaces.cli.run_and_watch import RunPresentation, start_and_follow
from dagwright.interfaces.cli.run_summary import failure_lines, print_answer, repair_lines, summary_line
from dagwright.interfaces.cli.session_turns import run_in_session
from dagwright.protocol.sessions import normalized_session_name
from dagwright.settings import Settings
from dagwright.toolset.toolset import load_toolset, references_of

if TYPE_CHECKING:
    from dagwright.history.run_view import RunView


def ask(request: AskRequest, output: Output) -> int:
    """Plan and run a request, and return the exit code.

    Raises:
        CommandError: the request cannot be planned.
    """
    return ask_with_settings(request, command_settings(), output)


def ask_with_settings(request: AskRequest, settings: Settings, output: Output) -> int:
    """Plan and run a request with these settings, and return the exit code; raise the errors of `ask`."""
    reject_invalid_options(request)
    toolset = load_toolset(settings, references_of(request.tools, request.agents, request.tools_queue))
    session_name = normalized_session_name(request.session_id) if request.session_id is not None else None
    # An invalid request is rejected before the server starts. This check needs no session: an invalid request is
    # invalid in every session.
    prepared_request = prepare_and_report_notes(request, toolset, output)
    require_model(request.model, settings, toolset, is_detached=request.is_detached)
    if request.is_plan_only:
        # Stdout has only the plan.
        print_document = _print_plan if output.is_json else _print_plan_or_reason
        presentation = RunPresentation(print_document, Output(is_json=True))
    else:
        needs_approval = (
            prepared_request.may_need_approval
            and not request.non_interactive
            and not request.is_detached
            and output.can_ask
        )
        presentation = RunPresentation(_print_answer, output, approve_on_terminal if needs_approval else None)
    if session_name is not None:
        turn = TurnRequest(
            session_name,
            request.text,
            lambda session: prepare_and_report_notes(request, toolset, output, session).start,
        )
        return run_in_session(turn, request, toolset, presentation=presentation, settings=settings)
    return start_and_follow(prepared_request.start, request, toolset, presentation=presentation, settings=settings)


def _print_answer(view: "RunView", document: Mapping[str, Any], output: Output) -> None:
    if output.is_json:
        output.document(document)
    else:
        print_answer(view, document, output)


def _print_plan(view: "RunView", document: Mapping[str, Any], output: Output) -> None:
    """Write the plan if the run produced one, else the document of the run."""
    if view.status == "completed":
        output.document(document["output"])
    else:
        output.document(document)


def _print_plan_or_reason(view: "RunView", document: Mapping[str, Any], output: Output) -> None:
    """Write the plan if the run produced one, else the reason on stderr."""
    for line in repair_lines(document):
        output.log(line)
    if view.status == "completed":
        output.document(document["output"])
        return
    output.log(summary_line(view, document))
    for line in failure_lines(document):
        output.log(line)
