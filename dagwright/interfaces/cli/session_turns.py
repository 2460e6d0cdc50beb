"""`ask --session` and `run --session`: start a turn of a session after its previous turn, and follow the new turn."""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from dagwright.client.errors import TurnRejected
from dagwright.client.requests import TurnRequest, start_turn
from dagwright.client.runs import namespace_runs
from dagwright.client.sessions import Sessions
from dagwright.client.starts import StartedRun, StartRequest
from dagwright.core.errors import PlanInvalid
from dagwright.core.model.compiled import path_of_first_model_node
from dagwright.interfaces.cli.command_connection import command_settings
from dagwright.interfaces.cli.command_loop import InterruptHandling, run_async
from dagwright.interfaces.cli.exit_codes import CommandError, CommandErrorCode, ExitCode
from dagwright.interfaces.cli.model_choice import require_model
from dagwright.interfaces.cli.output import Output, one_line
from dagwright.interfaces.cli.prepare_run import prepare_run
from dagwright.interfaces.cli.run_and_watch import (
    FollowedRun,
    RunPresentation,
    StartOptions,
    default_title,
    follow_to_end,
    interrupt_message,
    print_detached_run,
    print_problems,
    print_run,
    reject_batch_in_session,
)
from dagwright.interfaces.cli.run_commands import RunArguments
from dagwright.interfaces.cli.run_host import continue_in_background, open_start_connection, serving_toolset
from dagwright.protocol.sessions import SessionRecord, Turn, normalized_session_name
from dagwright.server import LocalServer
from dagwright.settings import Settings
from dagwright.toolset.toolset import Toolset, load_toolset, references_of

if TYPE_CHECKING:
    from dagwright.client.runs import Runs


def run_plan(arguments: RunArguments, output: Output) -> int:
    """Run a plan as a turn of a session, and return the exit code.

    Raises:
        SessionIdInvalid: the ID is invalid.
    """
    reject_batch_in_session(arguments)
    settings = command_settings()
    toolset = load_toolset(settings, references_of(arguments.tools, arguments.agents, arguments.tools_queue))
    session_name, title = normalized_session_name(arguments.session_id or ""), default_title(arguments)

    def prepare(session: SessionRecord) -> StartRequest:
        start_request = prepare_run(arguments, toolset, output, session)
        if (model_node := path_of_first_model_node(start_request.plan)) is not None:
            require_model(arguments.model, settings, toolset, is_detached=arguments.is_detached, node_id=model_node)
        return replace(start_request, title=title)

    turn_request = TurnRequest(session_name, f"(the plan {title})" if title else "", prepare)
    try:
        return run_in_session(
            turn_request, arguments, toolset, presentation=RunPresentation(print_run, output), settings=settings
        )
    except PlanInvalid as invalid:
        print_problems(arguments, invalid, output)
        return ExitCode.REJECTED


def run_in_session(
    turn_request: TurnRequest,
    start_options: StartOptions,
    toolset: Toolset,
    *,
    presentation: RunPresentation,
    settings: Settings,
) -> int:
    """Start the run of a turn when the session is free, follow the run to its end, and return the exit code."""
    output = presentation.output

    async def work(interrupt_handling: InterruptHandling) -> int:
        async with open_start_connection(settings, toolset) as connection:
            runs = namespace_runs(connection, settings)
            # The worker also serves the session: without a worker, the session accepts no turns.
            if start_options.is_detached:
                ensure_served = partial(continue_in_background, settings, toolset)
                sessions = Sessions(connection, runs, task_queue=settings.task_queue, ensure_served=ensure_served)
                started_run, start_request = await _start_turn(
                    turn_request, start_options, runs, sessions, output=output
                )
                return print_detached_run(started_run, start_request, connection, output=output)
            sessions = Sessions(connection, runs, task_queue=settings.task_queue)
            async with serving_toolset(connection.client, toolset, settings=settings):
                started_run, _ = await _start_turn(turn_request, start_options, runs, sessions, output=output)
                if start_options.keeps_server:
                    LocalServer(settings).keep_running()
                interrupt_handling.text = interrupt_message(started_run.run_id, connection, settings)
                message = f" in the session {one_line(turn_request.session_name)}"
                followed_run = FollowedRun(started_run.run_id, message, started_run.is_new)
                presentation_with_watchdog = replace(presentation, exit_watchdog=interrupt_handling.exit_watchdog)
                code = await follow_to_end(
                    followed_run, connection, settings, toolset=None, presentation=presentation_with_watchdog
                )
                await sessions.wait_for_turn_end(turn_request.session_name, started_run.run_id)
                return code

    return run_async(work, output)


async def _start_turn(
    turn_request: TurnRequest, start_options: StartOptions, runs: "Runs", sessions: Sessions, *, output: Output
) -> tuple[StartedRun, StartRequest]:
    """Start the run of a turn. Return the run and its start request.

    Raises:
        CommandError: the session rejects the turn.
    """

    def log_busy_session(running_turn: Turn) -> None:
        run_id = one_line(running_turn.run_id)
        output.log(
            f"{busy_session_text(turn_request.session_name, running_turn)}; this turn waits for the end of that run: "
            f"`dagwright watch {run_id}` shows it, `dagwright inbox` lists its requests"
        )

    try:
        return await start_turn(
            turn_request,
            runs,
            sessions,
            run_id=start_options.run_id,
            on_busy=None if start_options.is_detached else log_busy_session,
        )
    except TurnRejected as rejection:
        raise command_error_of(rejection) from None


def busy_session_text(session_name: str, turn: Turn) -> str:
    """Describe a session that is running another turn."""
    request_text = f" ({one_line(turn.request, limit=60)})" if turn.request else ""
    return f"the session {one_line(session_name)} is running {one_line(turn.run_id)}{request_text}"


def command_error_of(rejection: TurnRejected) -> CommandError:
    """Convert the rejection of a turn to the error of a command."""
    return CommandError(str(rejection), code=CommandErrorCode.of(rejection.code))
