"""`fork`: start a run from an existing run, with a changed plan, input or tool; only affected nodes run again."""

from collections.abc import Iterator, Sequence
from typing import Any

from dagwright.client.errors import ForkRejected
from dagwright.client.fork_runs import ForkChanges, ForkOptions, draft_fork, start_fork
from dagwright.client.forks import ForkDraft, Forks
from dagwright.client.runs import namespace_runs
from dagwright.client.starts import StartedRun
from dagwright.core.errors import PlanInvalid
from dagwright.interfaces.cli.background_settings import FILES_ROOT, reject_other_settings
from dagwright.interfaces.cli.command_connection import command_settings, open_command_connection
from dagwright.interfaces.cli.command_loop import InterruptHandling, run_async
from dagwright.interfaces.cli.exit_codes import CommandError, CommandErrorCode, ExitCode
from dagwright.interfaces.cli.output import Output, one_line, run_outcome
from dagwright.interfaces.cli.plan_input import (
    PlanSource,
    convert_inputs,
    invalid_plan_document,
    parse_pairs,
    problem_lines,
    read_plan,
)
from dagwright.interfaces.cli.run_commands import ForkArguments
from dagwright.server.store_notes import check_store
from dagwright.store import open_store
from dagwright.toolset.toolset import load_toolset

_NODES_SHOWN = 20


def fork(arguments: ForkArguments, output: Output) -> int:
    """Show the effect of a fork, start the fork after confirmation, and return without waiting for its end.

    Returns:
        2 if no run was started.

    Raises:
        CommandError: the run cannot be forked in this way, the fork was not confirmed, or another process that serves
            runs of the state folder has other settings.
    """
    settings = command_settings()

    async def work(_: InterruptHandling) -> int:
        async with open_command_connection(settings, output) as connection:
            runs = namespace_runs(connection, settings)
            tools = await runs.tools_of(arguments.run_id)
            store = open_store(settings.payload_store, state_dir=settings.state_dir)
            await check_store(connection.client, store, task_queue=settings.task_queue)
            forks = Forks(runs.reader, store)
            try:
                toolset = load_toolset(settings, tools)
                draft = await draft_fork(
                    arguments.run_id,
                    _fork_changes(arguments),
                    runs=runs,
                    forks=forks,
                    tools=toolset.declarations(),
                )
                if not _is_confirmed(draft, arguments, output):
                    return ExitCode.REJECTED
                # This command starts no worker, so the folder of the file tools may differ.
                reject_other_settings(settings, ignored_names=frozenset({FILES_ROOT}))
                fork_run = await start_fork(draft, runs=runs, forks=forks, options=ForkOptions(tools))
            except PlanInvalid as invalid:
                _print_problems(arguments, invalid, output)
                return ExitCode.REJECTED
            except ForkRejected as rejection:
                raise CommandError(str(rejection), code=CommandErrorCode.FORK_REJECTED) from None
        _print_fork(draft, fork_run, output)
        return ExitCode.COMPLETED

    return run_async(work, output)


def _fork_changes(arguments: ForkArguments) -> ForkChanges:
    input_texts = parse_pairs(arguments.inputs, option="--input")
    plans = () if arguments.plan is None else (read_plan(arguments.plan),)
    return ForkChanges(plans, input_texts, arguments.rerun, convert_inputs)


def _is_confirmed(draft: ForkDraft, arguments: ForkArguments, output: Output) -> bool:
    """Show the effect of a fork and return whether it is confirmed.

    Raises:
        CommandError: there is no terminal and no `--yes`.
    """
    for line in _difference_lines(draft):
        output.print(one_line(line, limit=1_000))
    if arguments.is_confirmed:
        return True
    if output.can_ask:
        return input("Start the fork? [y/N] ").strip().lower() in ("y", "yes")
    if output.is_json:
        message = "nothing was started; --yes starts the fork"
        output.document(_document(draft, message, code=CommandErrorCode.NOT_CONFIRMED))
        output.log(message)
        return False
    raise CommandError("nothing was started: add --yes to start the fork", code=CommandErrorCode.NOT_CONFIRMED)


def _difference_lines(draft: ForkDraft) -> Iterator[str]:
    prediction = draft.prediction
    if prediction.reused:
        yield f"reused: {_join_ids(prediction.reused, limit=_NODES_SHOWN)}"
    for task_id, reason in [*prediction.executed.items()][:_NODES_SHOWN]:
        effects = draft.effects.get(task_id)
        yield f"executed: {task_id}{f' ({effects})' if effects else ''}: it {reason}"
    if (omitted_count := len(prediction.executed) - _NODES_SHOWN) > 0:
        yield f"executed: and {omitted_count:,} more"
    if prediction.reused_if_unchanged:
        yield f"reused if their inputs do not change: {_join_ids(prediction.reused_if_unchanged, limit=_NODES_SHOWN)}"
    if prediction.decided_later:
        yield f"decided later: {_join_ids(prediction.decided_later, limit=_NODES_SHOWN)}"
    if draft.planned_again:
        yield f"planned again by a model: {_join_ids(draft.planned_again, limit=_NODES_SHOWN)}"


def _join_ids(ids: Sequence[str], *, limit: int) -> str:
    """Return the IDs as `a, b and 3 more`."""
    listed_ids = ", ".join(one_line(task_id, limit=80) for task_id in ids[:limit])
    return f"{listed_ids} and {len(ids) - limit:,} more" if len(ids) > limit else listed_ids


def _document(draft: ForkDraft, message: str, *, code: CommandErrorCode | None = None) -> dict[str, Any]:
    fork_fields = {"fork_run_id": draft.run_id, "started": code is None, "difference": draft.to_json()}
    return {**run_outcome(draft.origin, message, code=code), **fork_fields}


def _print_fork(draft: ForkDraft, fork_run: StartedRun, output: Output) -> None:
    outcome = "was forked" if fork_run.is_new else "was already forked in this way"
    message = f"{outcome} as {fork_run.run_id}; `dagwright watch {fork_run.run_id}` runs and follows the fork"
    if output.is_json:
        output.document(_document(draft, message))
    else:
        output.print(f"{draft.origin} {message}")


def _print_problems(arguments: ForkArguments, invalid: PlanInvalid, output: Output) -> None:
    source = PlanSource(arguments.plan or arguments.run_id, None, invalid)
    if output.is_json:
        output.document(invalid_plan_document(source, invalid))
    for line in problem_lines(source, invalid):
        output.log(line)
