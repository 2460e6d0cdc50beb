"""`run` of a `.jsonl` file: one run for each line, started together and followed in the order of the lines.

Every line is prepared before the first run starts, so no run starts if a line is invalid.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagwright.client.errors import RunIdInUse, RunIdInvalid
from dagwright.client.runs import namespace_runs
from dagwright.client.starts import StartedRun, StartRequest
from dagwright.core.errors import PlanInvalid, Problem, pointer
from dagwright.core.model.compiled import path_of_first_model_node
from dagwright.core.name_hints import suggestion
from dagwright.core.text import format_count
from dagwright.interfaces.cli.command_connection import command_settings
from dagwright.interfaces.cli.command_loop import InterruptHandling, run_async
from dagwright.interfaces.cli.exit_codes import CommandErrorCode, ExitCode
from dagwright.interfaces.cli.model_choice import require_model
from dagwright.interfaces.cli.output import Output, one_line, run_outcome
from dagwright.interfaces.cli.plan_input import (
    PlanSource,
    invalid_plan_document,
    parse_pairs,
    problem_lines,
    read_inputs_file,
    read_sources,
)
from dagwright.interfaces.cli.prepare_run import prepare_run
from dagwright.interfaces.cli.run_and_watch import FollowedRun, RunPresentation, follow_to_end, is_batch, print_run
from dagwright.interfaces.cli.run_and_watch import run as run_one
from dagwright.interfaces.cli.run_commands import RunArguments
from dagwright.interfaces.cli.run_host import continue_in_background, open_start_connection, serving_toolset
from dagwright.server import Connection, LocalServer
from dagwright.settings import Settings
from dagwright.toolset.toolset import Toolset, load_toolset, references_of

if TYPE_CHECKING:
    from dagwright.history.run_view import RunView

_FAILURES_BY_SEVERITY = (ExitCode.REJECTED, ExitCode.FAILED, ExitCode.CANCELLED)
"""Exit codes from most to least severe. A batch with failed runs has the most severe exit code of its runs."""


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of the file, with the start request of its run.

    Args:
        number: from 1.
    """

    number: int
    start_request: StartRequest


def run(arguments: RunArguments, output: Output) -> int:
    """Run a plan, or the plan of each line of a `.jsonl` file, and return the exit code."""
    if arguments.session_id is not None:
        from dagwright.interfaces.cli.session_turns import run_plan  # noqa: PLC0415 - other runs need no sessions

        return run_plan(arguments, output)
    return run_batch(arguments, output) if is_batch(arguments) else run_one(arguments, output)


def run_batch(arguments: RunArguments, output: Output) -> int:
    """Start a run for each line of a file, follow all to their ends, and return the exit code."""
    settings = command_settings()
    toolset = load_toolset(settings, references_of(arguments.tools, arguments.agents, arguments.tools_queue))
    sources = [*read_sources([arguments.plan])]
    if not sources:
        empty_file_error = PlanInvalid([Problem("empty_plan", "the file has no plan: every line is empty")])
        sources = [PlanSource(arguments.plan, None, empty_file_error)]
    lines, is_valid = [], True
    for source in sources:
        try:
            lines.append(_prepare_line(source, arguments, toolset, output))
        except PlanInvalid as invalid:
            is_valid = False
            _print_problems(source, invalid, output)
    if is_valid:
        is_valid = _check_unused_inputs(arguments, lines, output)
    if not is_valid:
        output.log("no run was started")
        return ExitCode.REJECTED
    for line in lines:
        if (model_node := path_of_first_model_node(line.start_request.plan)) is not None:
            require_model(arguments.model, settings, toolset, is_detached=arguments.is_detached, node_id=model_node)
    return run_async(
        lambda interrupt_handling: _start_and_follow(
            lines, arguments, settings, toolset, output, interrupt_handling=interrupt_handling
        ),
        output,
    )


def _check_unused_inputs(arguments: RunArguments, lines: Sequence[_Line], output: Output) -> bool:
    """Report inputs that no plan of the batch has; return whether the batch can start.

    Unused inputs of `--input-file` are ignored; unused inputs of `--input` are errors.
    """
    used_names = {name for line in lines for name in line.start_request.inputs}
    input_names = list(dict.fromkeys(name for line in lines for name in line.start_request.plan.inputs))
    for name in read_inputs_file(arguments.inputs_file):
        if name not in used_names:
            output.log(f"--input-file: {arguments.inputs_file}: ignored, no plan of the batch has the input {name!r}")
    problems = [
        Problem(
            "invalid_field",
            f"no plan of the batch has the input {name!r}",
            pointer("inputs", name),
            hint=suggestion(name, input_names)
            or (f"the plans have {', '.join(input_names)}" if input_names else "the plans have no inputs"),
        )
        for name in parse_pairs(arguments.inputs, option="--input")
        if name not in used_names
    ]
    if problems:
        _print_problems(PlanSource(arguments.plan, None, None), PlanInvalid(problems), output)
    return not problems


def _prepare_line(source: PlanSource, arguments: RunArguments, toolset: Toolset, output: Output) -> _Line:
    if isinstance(source.plan, PlanInvalid) and source.line is None:
        raise source.plan
    number = source.line or 0
    run_id = None if arguments.run_id is None else f"{arguments.run_id}-{number}"
    title = f"{Path(arguments.plan).name}, line {number}"
    start_request = prepare_run(arguments, toolset, output, source=source)
    return _Line(number, replace(start_request, run_id=run_id, title=title))


def _print_problems(source: PlanSource, invalid: PlanInvalid, output: Output) -> None:
    if output.is_json:
        output.document(invalid_plan_document(source, invalid), is_single_line=True)
    for line in problem_lines(source, invalid):
        output.log(one_line(line, limit=2_000))


async def _start_and_follow(
    lines: Sequence[_Line],
    arguments: RunArguments,
    settings: Settings,
    toolset: Toolset,
    output: Output,
    *,
    interrupt_handling: InterruptHandling,
) -> int:
    async with open_start_connection(settings, toolset) as connection:
        runs = namespace_runs(connection, settings)
        interrupt_handling.text = "the started runs continue; `dagwright list` shows them"
        started_runs, codes = [], list[int]()
        for line in lines:
            try:
                started_runs.append((line, await runs.start(line.start_request)))
            except (RunIdInUse, RunIdInvalid) as error:
                codes.append(ExitCode.REJECTED)
                _print_start_error(line, error, output)
        if arguments.is_detached:
            await continue_in_background(settings, toolset)
            for line, started_run in started_runs:
                _print_detached_run(line, started_run, output)
            return worst_code(codes)
        if arguments.keeps_server:
            LocalServer(settings).keep_running()
        codes += await _follow_all(started_runs, connection, settings, toolset=toolset, output=output)
        output.print(_summary(codes))
        return worst_code(codes)


async def _follow_all(
    started_runs: Sequence[tuple[_Line, StartedRun]],
    connection: Connection,
    settings: Settings,
    *,
    toolset: Toolset,
    output: Output,
) -> Sequence[int]:
    """Serve all runs until they have ended, show them one by one, and return their exit codes."""
    codes = []
    async with serving_toolset(connection.client, toolset, settings=settings):
        for line, started_run in started_runs:
            output.print(f"line {line.number}:")
            followed_run = FollowedRun(
                started_run.run_id,
                "" if started_run.is_new else " already exists; continuing it",
                started_run.is_new,
            )
            presentation = RunPresentation(_line_printer(line.number), output)
            codes.append(
                await follow_to_end(followed_run, connection, settings, toolset=None, presentation=presentation)
            )
    return codes


def _line_printer(number: int) -> Any:
    """Return a function that writes the end of a run; with `--json`, a document on one line with the line number."""

    def print_line(view: "RunView", document: Mapping[str, Any], output: Output) -> None:
        if output.is_json:
            output.document({"line": number, **document}, is_single_line=True)
        else:
            print_run(view, document, output)

    return print_line


def _print_start_error(line: _Line, error: Exception, output: Output) -> None:
    code = CommandErrorCode.RUN_ID_IN_USE if isinstance(error, RunIdInUse) else CommandErrorCode.INVALID_RUN_ID
    if output.is_json:
        output.document({"line": line.number, "code": code, "message": str(error)}, is_single_line=True)
    output.log(f"line {line.number}: {error}")


def _print_detached_run(line: _Line, started_run: StartedRun, output: Output) -> None:
    message = f"runs in the background; `dagwright watch {started_run.run_id}` shows it"
    if output.is_json:
        output.document({"line": line.number, **run_outcome(started_run.run_id, message)}, is_single_line=True)
    else:
        output.print(f"line {line.number}: {started_run.run_id} {message}")


def worst_code(codes: Sequence[int]) -> int:
    """Return the exit code of a batch whose runs have these exit codes."""
    return next((code for code in _FAILURES_BY_SEVERITY if code in codes), ExitCode.COMPLETED)


def _summary(codes: Sequence[int]) -> str:
    labels = {
        ExitCode.COMPLETED: "completed",
        ExitCode.FAILED: "failed",
        ExitCode.CANCELLED: "cancelled",
        ExitCode.REJECTED: "not started",
    }
    counts = [f"{codes.count(code)} {word}" for code, word in labels.items() if code in codes]
    return f"{format_count(len(codes), 'run')}: {', '.join(counts)}"
