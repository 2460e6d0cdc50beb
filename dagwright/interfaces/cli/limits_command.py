"""`limits` and `policy`: show or change the limits of a run, and which of its calls need approval."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from dagwright.client.steering import Command, read_scheduler
from dagwright.core.model.times import parse_duration
from dagwright.features.commands.steering import limits_to_json, policy_to_json
from dagwright.history.run_reader import RunReader
from dagwright.interfaces.cli.command_arguments import LimitsArguments
from dagwright.interfaces.cli.command_connection import command_settings, open_read_connection
from dagwright.interfaces.cli.command_loop import InterruptHandling, run_async
from dagwright.interfaces.cli.exit_codes import CommandError, ExitCode
from dagwright.interfaces.cli.node_text import local_date_time
from dagwright.interfaces.cli.output import Output, indented_value_text
from dagwright.interfaces.cli.plan_input import parse_new_limits, read_policy
from dagwright.interfaces.cli.run_changes import author_of, send

if TYPE_CHECKING:
    from dagwright.features.run_scheduler import RunScheduler


_NO_DEADLINE = "none"


def limits(arguments: LimitsArguments, output: Output) -> int:
    """Change the limits of a run, or show them; return 2 if the run rejects the command.

    Raises:
        CommandError: the deadline or the budget is invalid.
    """
    new_limits: dict[str, Any] = {}
    if arguments.max_parallel is not None:
        new_limits["max_parallel"] = arguments.max_parallel
    if arguments.deadline is not None:
        new_limits["deadline"] = _parse_deadline(arguments.deadline)
    if arguments.budget is not None:
        new_limits["budget"] = parse_new_limits(arguments.budget)
    if not new_limits:
        return _show(arguments, output, to_document=limits_to_json, to_text=_limits_text)
    return send(arguments.run_id, Command.set_limits(new_limits), author_of(arguments), output)


def policy(arguments: LimitsArguments, output: Output) -> int:
    """Change which calls of a run need approval, or show the policy; return 2 if the run rejects the command.

    Raises:
        CommandError: the file does not contain a valid policy.
    """
    if (new_policy := read_policy(arguments.policy_file)) is None:
        return _show(arguments, output, to_document=policy_to_json, to_text=_policy_text)
    return send(arguments.run_id, Command.set_policy(new_policy.to_json()), author_of(arguments), output)


def _parse_deadline(text: str) -> str | None:
    if text == _NO_DEADLINE:
        return None
    try:
        parse_duration(text)
    except ValueError as error:
        raise CommandError(f"--deadline must be a duration such as 4h, or {_NO_DEADLINE}: {error}") from None
    return text


def _show(
    arguments: LimitsArguments,
    output: Output,
    *,
    to_document: "Callable[[RunScheduler], Mapping[str, Any]]",
    to_text: "Callable[[RunScheduler], str]",
) -> int:
    settings = command_settings()

    async def work(_: InterruptHandling) -> int:
        async with open_read_connection(settings, output) as connection:
            scheduler = await read_scheduler(RunReader(connection.client, arguments.run_id))
        if output.is_json:
            output.document({"run_id": arguments.run_id, **to_document(scheduler)})
        output.print(to_text(scheduler))
        return ExitCode.COMPLETED

    return run_async(work, output)


def _limits_text(scheduler: "RunScheduler") -> str:
    ends_at = scheduler.features.deadline.deadline.at
    deadline_text = "no deadline" if ends_at is None else f"deadline {local_date_time(ends_at)}"
    text = f"at most {scheduler.state.max_in_flight} nodes at the same time; {deadline_text}"
    if (budget := scheduler.features.budget.budget) is None:
        return text
    if budget.is_child:
        return f"{text}; the budget of the root run applies"
    budget_text = budget.describe(
        [*budget.limits], run_usage=scheduler.state.totals.usage.total, added_count=scheduler.state.added_count
    )
    return f"{text}; budget {budget_text or 'without a limit'}"


def _policy_text(scheduler: "RunScheduler") -> str:
    return indented_value_text(scheduler.state.policy.to_json())
