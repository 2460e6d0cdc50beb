"""`run` and `watch`: start or find a run, serve it, and follow it to its end."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from dagwright.client.errors import RunIdInUse
from dagwright.client.runs import namespace_runs
from dagwright.client.starts import StartedRun, StartRequest
from dagwright.core.errors import PlanInvalid
from dagwright.core.model.compiled import path_of_first_model_node
from dagwright.core.validation.inputs import schema_of_missing_inputs
from dagwright.interfaces.cli.command_arguments import ShowArguments
from dagwright.interfaces.cli.command_connection import (
    command_settings,
    open_command_connection,
    server_without_temporary_ui_link,
)
from dagwright.interfaces.cli.command_loop import InterruptHandling, run_async
from dagwright.interfaces.cli.exit_codes import CommandError, ExitCode, exit_code_of
from dagwright.interfaces.cli.follow_run import RunFollower
from dagwright.interfaces.cli.model_choice import require_model
from dagwright.interfaces.cli.output import Output, append_link, run_outcome
from dagwright.interfaces.cli.plan_input import (
    STANDARD_INPUT,
    PlanSource,
    invalid_plan_document,
    problem_lines,
)
from dagwright.interfaces.cli.prepare_run import prepare_run
from dagwright.interfaces.cli.process_exit import ExitWatchdog
from dagwright.interfaces.cli.request_text import inputs_command
from dagwright.interfaces.cli.run_commands import RunArguments
from dagwright.interfaces.cli.run_host import continue_in_background, open_start_connection, serving_toolset
from dagwright.interfaces.cli.run_summary import print_end
from dagwright.server import Connection, LocalServer
from dagwright.settings import Settings
from dagwright.tools import ToolLoadError
from dagwright.toolset.toolset import Toolset, load_toolset, references_of

if TYPE_CHECKING:
    from dagwright.client.runs import Runs
    from dagwright.history.run_view import RunView

_MISSING_TOOL_CODES = ("unknown_tool", "unknown_agent")
"""Codes of the problems of a plan whose tools were renamed or removed after its run was started."""


def run(arguments: RunArguments, output: Output) -> int:
    """Run a plan to its end, or start it and let it continue in the background; return the exit code."""
    settings = command_settings()
    toolset = load_toolset(settings, references_of(arguments.tools, arguments.agents, arguments.tools_queue))
    try:
        start_request = prepare_run(arguments, toolset, output)
    except PlanInvalid as invalid:
        return _follow_run_with_missing_tools(arguments, toolset, invalid, output=output, settings=settings)
    if (model_node := path_of_first_model_node(start_request.plan)) is not None:
        require_model(arguments.model, settings, toolset, is_detached=arguments.is_detached, node_id=model_node)
    presentation = RunPresentation(print_run, output)
    return start_and_follow(
        start_request, arguments, toolset, presentation=presentation, settings=settings, title=default_title(arguments)
    )


def _follow_run_with_missing_tools(
    arguments: RunArguments, toolset: Toolset, invalid: PlanInvalid, *, output: Output, settings: Settings
) -> int:
    """Follow the existing run of a plan whose tools have since been renamed or removed.

    The plan is rejected if it has problems other than missing tools, or if no run of the plan exists.
    """
    if arguments.run_id is None or any(problem.code not in _MISSING_TOOL_CODES for problem in invalid.problems):
        print_problems(arguments, invalid, output)
        return ExitCode.REJECTED
    title = default_title(arguments)
    try:
        start_request = prepare_run(replace(arguments, non_interactive=True), toolset, output, allow_unknown_tools=True)

        async def find_run(runs: "Runs") -> StartedRun:
            existing_run = await runs.find(replace(start_request, run_id=arguments.run_id, title=title))
            if existing_run is None:
                raise invalid
            return existing_run

        presentation = RunPresentation(print_run, output)
        return start_and_follow(
            start_request,
            arguments,
            toolset,
            presentation=presentation,
            settings=settings,
            title=title,
            start_or_find=find_run,
        )
    except (PlanInvalid, RunIdInUse):
        print_problems(arguments, invalid, output)
        return ExitCode.REJECTED


def default_title(arguments: RunArguments) -> str | None:
    """Return the title for the run of a plan without a title: the file name; `None` for standard input."""
    return None if arguments.plan == STANDARD_INPUT else Path(arguments.plan).name


class StartOptions(Protocol):
    """The options of a command that concern the start of its run."""

    @property
    def run_id(self) -> str | None:
        """Run ID, if given."""

    @property
    def is_detached(self) -> bool:
        """Whether the run continues in the background, without the command."""

    @property
    def keeps_server(self) -> bool:
        """Whether the server keeps running after the command."""


@dataclass(frozen=True, slots=True)
class RunPresentation:
    """How a command shows its run.

    Args:
        write: writes the end of the run, or its document.
        output: output of the command.
        on_served: called as soon as a worker of the command serves the run, before the command follows the run.
        exit_watchdog: started after the end of the run; ends the process if steps of other runs do not end.
    """

    write: "Callable[[RunView, Mapping[str, Any], Output], None]"
    output: Output
    on_served: "Callable[[Runs, str, Output], Awaitable[None]] | None" = None
    exit_watchdog: ExitWatchdog | None = None


@dataclass(frozen=True, slots=True)
class FollowedRun:
    """A run that a command follows to its end.

    Args:
        suffix: text after the run ID in the first line, if the run is open.
        is_new: this command started the run; a background worker may have finished it already.
    """

    run_id: str
    suffix: str = ""
    is_new: bool = False

    def first_line(self, *, has_ended: bool) -> str:
        """Return the first line about the run."""
        message = " has already ended" if has_ended and not self.is_new else self.suffix
        return f"run {self.run_id}{message}"


def start_and_follow(
    start_request: StartRequest,
    start_options: StartOptions,
    toolset: Toolset,
    *,
    presentation: RunPresentation,
    settings: Settings,
    title: str | None = None,
    start_or_find: "Callable[[Runs], Awaitable[StartedRun]] | None" = None,
) -> int:
    """Start a run, and follow it to its end or let it continue in the background; return the exit code.

    Args:
        title: title of the run in lists if its plan has no title.
        start_or_find: starts or finds the run; by default, the run of `start_request` is started.
    """
    output = presentation.output

    async def start_run(runs: "Runs") -> StartedRun:
        return await runs.start(replace(start_request, run_id=start_options.run_id, title=title))

    async def work(interrupt_handling: InterruptHandling) -> int:
        async with open_start_connection(settings, toolset) as connection:
            started_run = await (start_or_find or start_run)(namespace_runs(connection, settings))
            if start_options.is_detached:
                await continue_in_background(settings, toolset)
                return print_detached_run(started_run, start_request, connection, output=output)
            if start_options.keeps_server:
                LocalServer(settings).keep_running()
            interrupt_handling.text = interrupt_message(started_run.run_id, connection, settings)
            message = "" if started_run.is_new else " already exists with the same plan; continuing it"
            followed_run = FollowedRun(started_run.run_id, message, started_run.is_new)
            presentation_with_watchdog = replace(presentation, exit_watchdog=interrupt_handling.exit_watchdog)
            return await follow_to_end(
                followed_run, connection, settings, toolset=toolset, presentation=presentation_with_watchdog
            )

    return run_async(work, output)


def watch(arguments: ShowArguments, output: Output) -> int:
    """Follow a run to its end, with a worker unless `--no-worker` is given; return its exit code."""
    settings = command_settings()

    async def work(interrupt_handling: InterruptHandling) -> int:
        async with open_command_connection(settings, output) as connection:
            runs = namespace_runs(connection, settings)
            references = await runs.tools_of(arguments.run_id)
            if arguments.has_worker:
                interrupt_handling.text = interrupt_message(arguments.run_id, connection, settings)
            else:
                interrupt_handling.text = continues_message(arguments.run_id)
            toolset = _toolset_of_run(settings, references, output) if arguments.has_worker else None
            presentation = RunPresentation(print_run, output, exit_watchdog=interrupt_handling.exit_watchdog)
            followed_run = FollowedRun(arguments.run_id)
            return await follow_to_end(followed_run, connection, settings, toolset=toolset, presentation=presentation)

    return run_async(work, output)


async def follow_to_end(
    followed_run: FollowedRun,
    connection: Connection,
    settings: Settings,
    *,
    toolset: Toolset | None,
    presentation: RunPresentation,
) -> int:
    """Serve and show a run until it ends; return its exit code.

    Args:
        toolset: tools of the worker; `None` starts no worker.
    """
    runs, output, run_id = namespace_runs(connection, settings), presentation.output, followed_run.run_id
    view = await runs.reader(run_id).read()
    server = server_without_temporary_ui_link(connection, settings) if view.is_closed else connection.server
    url = server.run_url(run_id, execution_id=view.execution_id)
    output.print(append_link(followed_run.first_line(has_ended=view.is_closed), url))
    if not view.is_closed:
        async with serving_toolset(connection.client, toolset, settings=settings):
            if presentation.on_served is not None:
                await presentation.on_served(runs, run_id, output)
            view = await RunFollower(runs, connection.client, run_id, output=output).follow_until()
            await _show_end(runs, view, presentation)
            # The watchdog starts before the worker drains, so that a step that does not end cannot delay the exit.
            if presentation.exit_watchdog is not None:
                presentation.exit_watchdog.start(exit_code_of(view.status))
            return exit_code_of(view.status)
    await _show_end(runs, view, presentation)
    return exit_code_of(view.status)


async def _show_end(runs: "Runs", view: "RunView", presentation: RunPresentation) -> None:
    presentation.write(view, await runs.document(view), presentation.output)


def print_run(view: "RunView", document: Mapping[str, Any], output: Output) -> None:
    """Write the end of a run, or its document."""
    if output.is_json:
        output.document(document)
    else:
        print_end(view, document, output)


def print_detached_run(
    started_run: StartedRun, start_request: StartRequest, connection: Connection, *, output: Output
) -> int:
    """Report that a run continues in the background; return the exit code."""
    watch_command = f"dagwright watch {started_run.run_id}"
    message = f"runs in the background; `{watch_command}` shows it, `dagwright down` ends the worker"
    if (schema := schema_of_missing_inputs(start_request.plan.inputs, start_request.inputs)) is not None:
        message += f"; it waits for its inputs: `{inputs_command(started_run.run_id, schema)}`"
    if output.is_json:
        output.document(run_outcome(started_run.run_id, message))
    else:
        url = connection.server.run_url(started_run.run_id, execution_id=started_run.execution_id)
        output.print(append_link(f"{started_run.run_id} {message}", url))
    return ExitCode.COMPLETED


def _toolset_of_run(settings: Settings, references: Sequence[str], output: Output) -> Toolset:
    try:
        return load_toolset(settings, references)
    except ToolLoadError as error:
        output.log(f"the tools of this run cannot be loaded here: {error}")
        return load_toolset(settings)


def print_problems(arguments: RunArguments, invalid: PlanInvalid, output: Output) -> None:
    """Report the problems of a plan."""
    source = PlanSource(arguments.plan, None, invalid)
    if output.is_json:
        output.document(invalid_plan_document(source, invalid))
    for line in problem_lines(source, invalid):
        output.log(line)


_INTERRUPT_HINT = "(running steps get 10 s to finish; Ctrl-C again exits immediately)"


def continues_message(run_id: str) -> str:
    """Return the message displayed on Ctrl-C for a run that continues without this command."""
    return f"the run {run_id} continues; `dagwright watch {run_id}` follows it {_INTERRUPT_HINT}"


def interrupt_message(run_id: str, connection: Connection, settings: Settings) -> str:
    """Return the message displayed on Ctrl-C for a run that this command serves."""
    is_local = connection.server.pid is not None
    if is_local and not any(daemon.is_running() for daemon in LocalServer(settings).workers()):
        return f"the run {run_id} has not ended: `dagwright watch {run_id}` continues it {_INTERRUPT_HINT}"
    return continues_message(run_id)


def is_batch(arguments: RunArguments) -> bool:
    """Return whether the arguments name a file with a plan on each line."""
    return arguments.plan.lower().endswith(".jsonl") and not arguments.is_repairing


def reject_batch_in_session(arguments: RunArguments) -> None:
    """Reject `--session` with a file of several plans: a turn of a session is one run.

    Raises:
        CommandError: the plan is a batch.
    """
    if is_batch(arguments):
        raise CommandError(
            "--session: a turn of a session is one run, but a .jsonl file has one run per line; omit --session"
        )
