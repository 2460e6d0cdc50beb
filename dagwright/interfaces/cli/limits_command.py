"""`limits`, `policy`, and budgets as text: `tokens=50000,money=1.50,time=2h`."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from dagwright.client.steering import Command, read_scheduler
from dagwright.core.model.budget_limits import limits_from_json
from dagwright.core.model.times import parse_duration
from dagwright.core.text import cut_bytes
from dagwright.features.budgets.budget import budget_of_options as checked_budget
from dagwright.features.budgets.budget import options_to_json
from dagwright.features.commands.steering import limits_to_json, policy_to_json
from dagwright.history.run_reader import RunReader
from dagwright.interfaces.cli.async_runs import InterruptHandling, run_async
from dagwright.interfaces.cli.command_arguments import LimitsRequest
from dagwright.interfaces.cli.command_connection import command_settings, connected_to_read
from dagwright.interfaces.cli.exit_codes import CommandRefused, ExitCode
from dagwright.interfaces.cli.node_text import local_date
from dagwright.interfaces.cli.output import Output, value_text
from dagwright.interfaces.cli.plan_input import read_policy
from dagwright.interfaces.cli.run_changes import author_of, send

if TYPE_CHECKING:
    from dagwright.features.run_scheduler import RunScheduler

_NO_LIMIT = "none"
_DIGITS = 20
"""Maximum length of a number: every limit is shorter, and Python parses no longer ones."""


def read_budget(text: str | None, *, is_asking: bool) -> Mapping[str, Any] | None:
    """Parse `--budget` to the budget of the run options; `None` if it was not given.

    Args:
        is_asking: request a higher limit from a user at the limit, instead of finishing.

    Raises:
        CommandRefused: the budget is invalid.
    """
    if text is None:
        return None
    on_limit = {} if is_asking else {"on_limit": "finish"}
    try:
        return options_to_json(checked_budget({**_parts(text), **on_limit}))
    except ValueError as error:
        raise _refused(text, error) from None


def read_new_limits(text: str) -> Mapping[str, Any]:
    """Parse new limits for the budget of a run; null removes a limit.

    Raises:
        CommandRefused: a limit is invalid.
    """
    try:
        parts = {name: None if value == _NO_LIMIT else value for name, value in _parts(text).items()}
        limits_from_json(parts, allow_null=True)
    except ValueError as error:
        raise _refused(text, error) from None
    return parts


def _parts(text: str) -> dict[str, Any]:
    parts: dict[str, Any] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not (name and equals and value):
            commas = ", and numbers without commas" if part.strip().isdecimal() else ""
            raise ValueError(f"invalid limit {part.strip()!r:.60}; write NAME=NUMBER{commas}")
        if name in parts:
            raise ValueError(f"{name} is given twice")
        is_count = name not in ("money", "time") and value.isascii() and value.isdecimal() and len(value) <= _DIGITS
        parts[name] = int(value) if is_count else value
    return parts


def _refused(text: str, error: ValueError) -> CommandRefused:
    return CommandRefused(
        f"--budget {cut_bytes(text, max_bytes=200)}: {error}; "
        "such as tokens=50000,money=1.50,calls=40,nodes=200,time=2h"
    )


_NO_DEADLINE = "none"


def limits(request: LimitsRequest, output: Output) -> int:
    """Change the limits of a run, or show them; return 2 if the run refuses.

    Raises:
        CommandRefused: the deadline or the budget is invalid.
    """
    changed: dict[str, Any] = {}
    if request.max_parallel is not None:
        changed["max_parallel"] = request.max_parallel
    if request.deadline is not None:
        changed["deadline"] = _deadline(request.deadline)
    if request.budget is not None:
        changed["budget"] = read_new_limits(request.budget)
    if not changed:
        return _show(request, output, document=limits_to_json, message=_limits_text)
    return send(request.workflow_id, Command.set_limits(changed), author_of(request), output)


def policy(request: LimitsRequest, output: Output) -> int:
    """Change which calls of a run need approval, or show the policy; return 2 if the run refuses.

    Raises:
        CommandRefused: the file has no valid policy.
    """
    if (steps := read_policy(request.policy_file)) is None:
        return _show(request, output, document=policy_to_json, message=_policy_text)
    return send(request.workflow_id, Command.set_policy(steps.to_json()), author_of(request), output)


def _deadline(text: str) -> str | None:
    if text == _NO_DEADLINE:
        return None
    try:
        parse_duration(text)
    except ValueError as error:
        raise CommandRefused(f"--deadline must be a duration such as 4h, or {_NO_DEADLINE}: {error}") from None
    return text


def _show(
    request: LimitsRequest,
    output: Output,
    *,
    document: "Callable[[RunScheduler], Mapping[str, Any]]",
    message: "Callable[[RunScheduler], str]",
) -> int:
    settings = command_settings()

    async def work(_: InterruptHandling) -> int:
        async with connected_to_read(settings, output) as connection:
            scheduler = await read_scheduler(RunReader(connection.client, request.workflow_id))
        if output.is_json:
            output.document({"run_id": request.workflow_id, **document(scheduler)})
        output.print(message(scheduler))
        return ExitCode.COMPLETED

    return run_async(work, output)


def _limits_text(scheduler: "RunScheduler") -> str:
    until = scheduler.features.deadline.deadline.at
    deadline = "no deadline" if until is None else f"deadline {local_date(until)}"
    text = f"{scheduler.state.max_in_flight} nodes at the same time; {deadline}"
    if (budget := scheduler.features.budget.budget) is None:
        return text
    if budget.is_child:
        return f"{text}; the budget of the parent run"
    used = budget.describe(
        [*budget.limits], used=scheduler.state.totals.usage.total, added_nodes=scheduler.state.added_count
    )
    return f"{text}; budget {used or 'without a limit'}"


def _policy_text(scheduler: "RunScheduler") -> str:
    return value_text(scheduler.state.policy.to_json())
