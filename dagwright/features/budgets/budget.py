"""Budget of a run: limits, usage, reservations of calls in flight, and calls that wait for budget.

Before a call starts, its estimated usage is reserved. When the call ends, the reported usage replaces the estimate. The
root run has the budget. For each call, a child run requests a reservation from the root run, through its parent runs,
and reports how the call ended. Therefore the root run knows all usage, and never reserves more than the remaining
budget. Added nodes and time are checked when a node is about to start; nothing is reserved for them.

The usage exceeds a limit only in three cases: calls in flight use more than estimated (including attempts that fail
with an unusable response); tools and agents call models themselves, and report their usage only when they end; and the
call that writes the final answer from partial results is always allowed.

This module must not import the scheduler.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import islice
from typing import Any, get_args

from dagwright.core.model.budget_limits import (
    KINDS,
    Limit,
    LimitAction,
    LimitKind,
    limit_from_json,
    limit_text,
    limit_to_json,
    limits_from_json,
    max_limit,
)
from dagwright.core.model.compiled import CompiledNode
from dagwright.core.model.states import NO_USAGE, Usage, usage_from_json
from dagwright.core.model.tools import AGENT_PREFIX, MODEL_TOOL, PLAN_READER, PURPOSE_ANSWER, ToolDeclaration
from dagwright.features.budgets.busy_time import BusyTime, busy_time_from_json

MAX_REQUESTED_CALLS = 250
"""Maximum number of calls for which a child run requests budget: its report has to fit into one message."""
_MODEL_CALL_LIMITS: Sequence[LimitKind] = ("tokens", "money", "calls")
"""Limits that only apply to model calls."""
ZERO_MONEY = Decimal(0)


def uses_models(node: CompiledNode, tools: Mapping[str, ToolDeclaration]) -> bool:
    """Return whether a node calls models.

    Args:
        tools: tools of the plan.
    """
    if node.kind != "tool":
        return False
    tool = tools.get(node.tool)
    is_declared = tool is not None and tool.uses_models
    return is_declared or node.tool == MODEL_TOOL or node.tool.startswith(AGENT_PREFIX)


def writes_final_answer(node: CompiledNode) -> bool:
    """Return whether a node writes the final answer of a run."""
    labels = node.arguments.get("labels")
    return node.tool == MODEL_TOOL and isinstance(labels, Mapping) and labels.get("purpose") == PURPOSE_ANSWER


def is_needed_to_finish(node: CompiledNode) -> bool:
    """Return whether a node runs even if the run finishes early with partial results."""
    return writes_final_answer(node) or node.tool == PLAN_READER


@dataclass(frozen=True, slots=True)
class Reservation:
    """Budget that one call has reserved or waits for.

    Args:
        tokens: estimated tokens of a model call; 0 for other calls, which reserve nothing.
        money: reserved money, set when the reservation is granted.
        nodes: number of nodes that were added to the plan up to and including the node of the call; `None` counts all
            added nodes.
    """

    tokens: int
    money: Decimal = ZERO_MONEY
    nodes: int | None = None


CallName = tuple[str, str]
"""Name of a call: id of the call that started the child run in which the call is made (empty for a call of the run
itself), and key of the call within that run.
"""


@dataclass(slots=True)
class UsageTotals:
    """Tokens, calls and money."""

    tokens: int = 0
    calls: int = 0
    money: Decimal = ZERO_MONEY

    def add(self, reservation: Reservation) -> None:
        """Add the reservation of a call."""
        self.tokens, self.calls, self.money = (
            self.tokens + reservation.tokens,
            self.calls + 1,
            self.money + reservation.money,
        )


@dataclass(slots=True)
class BudgetReport:
    """Report of a child run to its parent.

    Args:
        requested_tokens: call that waits for budget -> estimated tokens of the call.
        settled: ended call -> usage of the call; `None` if the usage is unknown.
        is_idle: whether the child run is idle (nothing runs, and it waits for people); `None` if that is unchanged
            since the last report.
    """

    requested_tokens: dict[str, int] = field(default_factory=dict)
    settled: dict[str, Usage | None] = field(default_factory=dict)
    is_idle: bool | None = None


@dataclass(slots=True)
class Budget:
    """Budget of a root run, or the part of it that a child run tracks.

    Args:
        limits: limits by kind; empty in a child run.
        on_limit: at the limit, ask a person for more budget, or finish with partial results.
        is_child: whether the run is a child run, so that its root run has the budget.
        is_timed: for a child run: whether the root run has a time limit, so this run reports when it is idle.
        finish_reason: reason if the run finishes early with partial results.
        reservations: reservations of calls in flight, and of calls that child runs may start.
        waiting_calls: calls that wait, in order. The key of a call of the run itself is its task id.
        requested_calls: for a child run: waiting calls for which the parent run has been asked for budget. These calls
            are the first of `waiting_calls`.
        withdrawal_counts: for a child run: call -> how often budget for the call was requested, and the call then ended
            while it waited.
        usage_by_child: call id of a running child run -> usage that it has reported so far.
        added_by_child: call id of a child run -> number of nodes that it has added.
        unreported_usage: reserved usage of ended calls whose usage is unknown. It counts as used.
        token_price: highest cost of a token so far; `None` while no cost is known.
        busy_time: busy time of the run.
        pending_report: next report to the parent run.
        pending_grants: call id of a child run -> its granted calls, which have to be sent to it.
    """

    limits: dict[LimitKind, Limit] = field(default_factory=dict)
    on_limit: LimitAction = "ask"
    is_child: bool = False
    finish_reason: str | None = None
    reservations: dict[CallName, Reservation] = field(default_factory=dict)
    waiting_calls: dict[CallName, Reservation] = field(default_factory=dict)
    requested_calls: dict[CallName, None] = field(default_factory=dict)
    withdrawal_counts: dict[CallName, int] = field(default_factory=dict, kw_only=True)
    usage_by_child: dict[str, Usage] = field(default_factory=dict)
    added_by_child: dict[str, int] = field(default_factory=dict)
    unreported_usage: UsageTotals = field(default_factory=UsageTotals)
    token_price: Decimal | None = None
    busy_time: BusyTime = field(default_factory=BusyTime)
    is_timed: bool = False
    pending_report: BudgetReport = field(default_factory=BudgetReport)
    pending_grants: dict[str, list[str]] = field(default_factory=dict)
    revision: int = field(default=0, init=False, compare=False)
    """Number of changes that may affect which calls may start."""
    _reserved_tokens: int = field(default=0, init=False, compare=False)
    _reserved_money: Decimal = field(default=ZERO_MONEY, init=False, compare=False)
    _reported_usage: Usage = field(default=NO_USAGE, init=False, compare=False)

    def __post_init__(self) -> None:
        for reservation in self.reservations.values():
            self._reserved_tokens, self._reserved_money = (
                self._reserved_tokens + reservation.tokens,
                self._reserved_money + reservation.money,
            )
        for usage in self.usage_by_child.values():
            self._reported_usage += usage

    # Calls.

    @property
    def limits_all_nodes(self) -> bool:
        """Whether the limits apply to all nodes, not only to model calls."""
        return "nodes" in self.limits or "time" in self.limits

    def reserve(self, name: CallName, reservation: Reservation, *, run_usage: Usage, added_count: int) -> bool:
        """Reserve budget for a call, or add it to the waiting calls.

        Args:
            reservation: budget that the call needs, without money.
            run_usage: usage of all calls of the run that have ended.
            added_count: nodes that the run has added itself.

        Returns:
            Whether the call may start.
        """
        if name in self.reservations:
            return True
        reservation = self.waiting_calls.get(name) or reservation
        if not self.is_child and not self.exceeded_limits(reservation, run_usage=run_usage, added_count=added_count):
            self.waiting_calls.pop(name, None)
            self._reserve(name, self._with_money(reservation, run_usage=run_usage))
            return True
        self.waiting_calls[name] = reservation
        self.revision += 1
        return False

    def settle(self, name: CallName, usage: Usage | None) -> None:
        """Handle the end of a call: release its reservation.

        Args:
            usage: usage of the call; `None` if it will never be known.
        """
        self.revision += 1
        if self.is_child:
            self.pending_report.settled[self._key(name)] = usage
        if name in self.requested_calls:
            self.withdrawal_counts[name] = self.withdrawal_counts.get(name, 0) + 1
        self._remove_waiting(name)
        reservation = self._release(name)
        if not self.is_child and usage is None and reservation is not None:
            self.unreported_usage.add(reservation)
        if usage is not None and usage.tokens and usage.cost is not None:
            self.token_price = max(self.token_price or ZERO_MONEY, usage.cost / usage.tokens)

    def apply_report(self, call: str, report: BudgetReport, *, added_count: int) -> None:
        """Handle the report of a running child run about its calls.

        Args:
            added_count: nodes that the child run and its own child runs have added.
        """
        self.revision += 1
        self.added_by_child[call] = added_count
        if report.is_idle is not None:
            self.busy_time.set_idle(call, is_idle=report.is_idle)
        for key, usage in report.settled.items():
            if usage is not None:
                self.usage_by_child[call] = self.usage_by_child.get(call, NO_USAGE) + usage
                self._reported_usage += usage
            self.settle((call, key), usage)
        for key, tokens in report.requested_tokens.items():
            # `settled` is read first, because one report may settle a call and request budget for it again.
            if (call, key) not in self.reservations:
                self.waiting_calls[call, key] = Reservation(tokens)

    def apply_grants(self, keys: Sequence[str]) -> None:
        """Grant reservations to waiting calls. Grants for child runs are passed on."""
        self.revision += 1
        # The parent run counts this run as busy as soon as the parent run has sent a grant.
        self.busy_time.reported_is_idle = False
        names = {self._key(name): name for name in self.waiting_calls}
        for key in keys:
            if (name := names.pop(key, None)) is not None:
                reservation = self.waiting_calls[name]
                self._remove_waiting(name)
                self._reserve(name, reservation)
                self._pass_grant(name)

    def _pass_grant(self, name: CallName) -> None:
        """Pass the grant of a call to its child run, which is busy again."""
        if name[0]:
            self.busy_time.set_idle(name[0], is_idle=False)
            self.pending_grants.setdefault(name[0], []).append(name[1])

    def end_child(self, call: str, usage: Usage) -> None:
        """Handle the end of a child run. From now on, the totals of the run contain the usage of the child run.

        Args:
            usage: total usage of the child run; if the usage is empty, the earlier reports of the child run count.
        """
        self.revision += 1
        reported_usage = self.usage_by_child.pop(call, NO_USAGE)
        self._reported_usage = self._reported_usage.minus(reported_usage)
        self.pending_grants.pop(call, None)
        self.busy_time.set_idle(call, is_idle=False)
        # `usage` is empty if the child run sent no final report. It also lacks the usage of nested child runs that sent
        # no final report.
        missing_usage = reported_usage.minus(usage)
        self.unreported_usage.tokens, self.unreported_usage.calls = (
            self.unreported_usage.tokens + missing_usage.tokens,
            self.unreported_usage.calls + missing_usage.calls,
        )
        self.unreported_usage.money += missing_usage.money
        for name in [name for name in (*self.reservations, *self.waiting_calls) if name[0] == call]:
            self.settle(name, NO_USAGE if usage.is_nonzero else None)
        if self.is_child and (late_usage := usage.minus(reported_usage)).is_nonzero:
            # The child run ended before it reported its last calls. This run reports these calls to its own parent now,
            # because the total of this run follows much later.
            self.pending_report.settled[_encoded_name((call, ""))] = late_usage

    # Remaining budget.

    def exceeded_limits(self, reservation: Reservation, *, run_usage: Usage, added_count: int) -> list[LimitKind]:
        """Return the limits whose remaining amount, after the reservations of other calls, is too small for a call."""
        return self._exceeded_kinds(reservation, self._remaining_amounts(run_usage), added_count=added_count)

    def _remaining_amounts(
        self, run_usage: Usage, *, ignores_reservations: bool = False
    ) -> dict[LimitKind, Limit | None]:
        """Return the remaining amount of each limit; `None` if unknown.

        For `nodes`, only the nodes that child runs have added are subtracted.
        """
        total = self._total_usage(run_usage)
        remaining_amounts: dict[LimitKind, Limit | None] = {}
        for kind, limit in self.limits.items():
            if kind == "tokens":
                remaining_amounts[kind] = limit - total.tokens - (0 if ignores_reservations else self._reserved_tokens)
            elif kind == "calls":
                remaining_amounts[kind] = limit - total.calls - (0 if ignores_reservations else len(self.reservations))
            elif kind == "nodes":
                remaining_amounts[kind] = limit - sum(self.added_by_child.values())
            elif kind == "time":
                remaining_amounts[kind] = limit - Decimal(str(self.busy_time.seconds))
            else:
                remaining_money = (
                    Decimal(limit) - total.money - (ZERO_MONEY if ignores_reservations else self._reserved_money)
                )
                remaining_amounts[kind] = None if self.has_unknown_cost(run_usage) else remaining_money
        return remaining_amounts

    def _exceeded_kinds(
        self, reservation: Reservation, remaining_amounts: Mapping[LimitKind, Limit | None], *, added_count: int
    ) -> list[LimitKind]:
        if self.finish_reason is not None:
            return [*KINDS]
        kinds = [kind for kind in remaining_amounts if reservation.tokens or kind not in _MODEL_CALL_LIMITS]
        return [
            kind
            for kind in kinds
            if (remaining := remaining_amounts[kind]) is None
            or self._exceeds(reservation, kind, remaining, added_count=added_count)
        ]

    def _exceeds(self, reservation: Reservation, kind: LimitKind, remaining: Limit, *, added_count: int) -> bool:
        if kind == "nodes":
            return (added_count if reservation.nodes is None else reservation.nodes) > remaining
        if kind == "tokens":
            return reservation.tokens > remaining
        if kind == "money" and self.token_price is not None:
            return self.token_price * reservation.tokens > remaining
        # While no price is known, one call reserves all remaining money.
        return remaining <= 0

    def has_unknown_cost(self, run_usage: Usage) -> bool:
        """Return whether the cost of some calls is unknown."""
        return run_usage.cost is None or self._reported_usage.cost is None

    def grant_waiting(self, *, run_usage: Usage, added_count: int) -> list[str]:
        """Grant reservations to all waiting calls that fit into the budget. Return the task ids of the granted calls of
        the run itself, in order; the grants of child runs are passed on."""
        task_ids: list[str] = []
        if self.is_child:
            return task_ids
        remaining_amounts = self._remaining_amounts(run_usage)
        for name, reservation in [*self.waiting_calls.items()]:
            if self._exceeded_kinds(reservation, remaining_amounts, added_count=added_count):
                continue
            del self.waiting_calls[name]
            self._reserve(name, self._with_money(reservation, run_usage=run_usage))
            remaining_amounts = self._remaining_amounts(run_usage)
            self._pass_grant(name)
            if not name[0]:
                task_ids.append(name[1])
        return task_ids

    def exhausted_limits(self, *, run_usage: Usage, added_count: int, name: CallName | None = None) -> list[LimitKind]:
        """Return the limits that are too small for a waiting call even if all reservations are released.

        Args:
            name: the call; `None` checks all waiting calls.
        """
        if self.is_child or self.finish_reason is not None:
            return []
        remaining_amounts = self._remaining_amounts(run_usage, ignores_reservations=True)
        reservations = self.waiting_calls.values() if name is None else (self.waiting_calls[name],)
        exceeded_kinds = {
            kind
            for reservation in reservations
            for kind in self._exceeded_kinds(reservation, remaining_amounts, added_count=added_count)
        }
        return [kind for kind in KINDS if kind in exceeded_kinds]

    def reasons_by_task(self, *, run_usage: Usage, added_count: int) -> dict[str, str]:
        """Return task id -> text that explains why its call waits, for calls of the run itself."""
        remaining_amounts = self._remaining_amounts(run_usage)
        texts_by_kinds: dict[tuple[LimitKind, ...], str] = {}
        texts_by_task: dict[str, str] = {}
        for (owner, task_id), reservation in self.waiting_calls.items():
            if not owner:
                kinds = tuple(self._exceeded_kinds(reservation, remaining_amounts, added_count=added_count))
                if kinds not in texts_by_kinds:
                    texts_by_kinds[kinds] = self.describe(kinds, run_usage=run_usage, added_count=added_count)
                texts_by_task[task_id] = texts_by_kinds[kinds]
        return texts_by_task

    def _with_money(self, reservation: Reservation, *, run_usage: Usage) -> Reservation:
        """Return a reservation with the money to reserve."""
        money = ZERO_MONEY
        if (limit := self.limits.get("money")) is not None:
            remaining_money = Decimal(limit) - self._total_usage(run_usage).money - self._reserved_money
            money = remaining_money if self.token_price is None else self.token_price * reservation.tokens
        return replace(reservation, money=money)

    def _reserve(self, name: CallName, reservation: Reservation) -> None:
        if not reservation.tokens:
            return
        self.reservations[name] = reservation
        self._reserved_tokens, self._reserved_money = (
            self._reserved_tokens + reservation.tokens,
            self._reserved_money + reservation.money,
        )

    def _release(self, name: CallName) -> Reservation | None:
        reservation = self.reservations.pop(name, None)
        if reservation is not None:
            self._reserved_tokens, self._reserved_money = (
                self._reserved_tokens - reservation.tokens,
                self._reserved_money - reservation.money,
            )
        if not self.reservations:
            self._reserved_money = ZERO_MONEY
        return reservation

    def _total_usage(self, run_usage: Usage) -> UsageTotals:
        reported_usage, unreported_usage = self._reported_usage, self.unreported_usage
        money = run_usage.money + reported_usage.money + unreported_usage.money
        return UsageTotals(
            run_usage.tokens + reported_usage.tokens + unreported_usage.tokens,
            run_usage.calls + reported_usage.calls + unreported_usage.calls,
            money,
        )

    def describe(self, kinds: Sequence[LimitKind], *, run_usage: Usage, added_count: int) -> str:
        """Return a text with the used amount of each limit."""
        total = self._total_usage(run_usage)
        amounts: Mapping[LimitKind, Any] = {
            "tokens": f"{total.tokens:,}",
            "money": total.money,
            "calls": f"{total.calls:,}",
            "nodes": f"{added_count + sum(self.added_by_child.values()):,}",
            "time": limit_text("time", Decimal(str(self.busy_time.seconds))),
        }
        limits = [(kind, limit_text(kind, self.limits[kind])) for kind in kinds if kind in self.limits]
        parts = [f"{kind}: {amounts[kind]} of {limit} used" for kind, limit in limits]
        if "money" in kinds and self.has_unknown_cost(run_usage):
            parts.append(
                "the cost of some calls is not known; give their model a price in the table of DAGWRIGHT_PRICES"
            )
        return ", ".join(parts)

    def raise_limits(self, amounts: Mapping[LimitKind, Limit | None]) -> None:
        """Raise limits; null removes a limit."""
        self.revision += 1
        for kind, amount in amounts.items():
            limit = self.limits.pop(kind, None)
            if limit is not None and amount is not None:
                self.limits[kind] = min(limit + amount, max_limit(kind))

    def set_limits(self, limits: Mapping[LimitKind, Limit | None]) -> None:
        """Replace limits; null removes a limit."""
        self.revision += 1
        for kind, limit in limits.items():
            self.limits.pop(kind, None)
            if limit is not None:
                self.limits[kind] = limit

    def _remove_waiting(self, name: CallName) -> None:
        self.waiting_calls.pop(name, None)
        self.requested_calls.pop(name, None)

    def _key(self, name: CallName) -> str:
        """Return the key of a call in messages to the parent run.

        If a call requests budget again after its earlier request was withdrawn, the call gets a new key. A grant for
        the earlier request may already be on its way.
        """
        count = self.withdrawal_counts.get(name, 0)
        return f"~{count}:{_encoded_name(name)}" if count else _encoded_name(name)

    def next_report(self) -> BudgetReport | None:
        """Return the next report to the parent run and clear the reported data; `None` if there is nothing to report.
        Requests that do not fit follow in later reports."""
        report, self.pending_report = self.pending_report, BudgetReport()
        if self.is_child and len(self.requested_calls) < min(len(self.waiting_calls), MAX_REQUESTED_CALLS):
            for name, reservation in islice(self.waiting_calls.items(), MAX_REQUESTED_CALLS):
                if name not in self.requested_calls:
                    self.requested_calls[name] = None
                    report.requested_tokens[self._key(name)] = reservation.tokens
        if self.is_timed and self.busy_time.is_idle is not self.busy_time.reported_is_idle:
            report.is_idle = self.busy_time.reported_is_idle = self.busy_time.is_idle
        return report if report.requested_tokens or report.settled or report.is_idle is not None else None

    def next_grants(self) -> dict[str, list[str]]:
        """Return and clear the grants that have not been sent to child runs yet."""
        grants, self.pending_grants = self.pending_grants, {}
        return grants

    # Serialization for continue-as-new and for the input of a run.

    def to_json(self) -> dict[str, Any]:
        """Return the budget as JSON, without empty fields."""
        parts = {
            **options_to_json(self),
            "is_child": self.is_child,
            "is_timed": self.is_timed,
            "finish_reason": self.finish_reason,
            "reserved": [_reservation_to_json(name, reservation) for name, reservation in self.reservations.items()],
            "waiting": [_reservation_to_json(name, reservation) for name, reservation in self.waiting_calls.items()],
            "reported": {call: usage.to_json() for call, usage in self.usage_by_child.items()},
            "added_by_child": self.added_by_child,
            "unreported": [self.unreported_usage.tokens, self.unreported_usage.calls, str(self.unreported_usage.money)],
            "token_price": None if self.token_price is None else str(self.token_price),
            "requested": len(self.requested_calls),
            "withdrawn": [[*name, count] for name, count in self.withdrawal_counts.items()],
            "busy": None if self.busy_time == BusyTime() else self.busy_time.to_json(),
        }
        return {name: part for name, part in parts.items() if part not in (None, False, {}, [])}


def budget_of_options(value: Any) -> Budget:
    """Parse the budget in the options of a run: limits and `on_limit`.

    Raises:
        ValueError: the value is invalid; the message names the field and the expected value.
    """
    if not isinstance(value, Mapping) or "on_limit" not in value:
        return Budget({kind: limit for kind, limit in limits_from_json(value).items() if limit is not None})
    limit_options = {name: part for name, part in value.items() if name != "on_limit"}
    for on_limit in get_args(LimitAction):
        if value["on_limit"] == on_limit:
            limits = {kind: limit for kind, limit in limits_from_json(limit_options).items() if limit is not None}
            return Budget(limits, on_limit)
    raise ValueError(f"on_limit must be ask or finish, not {value['on_limit']!r:.60}")


def options_to_json(budget: Budget) -> dict[str, Any]:
    """Return the options of a run that set the limits and `on_limit` of a budget."""
    limits = {kind: limit_to_json(kind, limit) for kind, limit in budget.limits.items()}
    return limits | ({"on_limit": budget.on_limit} if budget.on_limit != "ask" else {})


def _reservation_to_json(name: CallName, reservation: Reservation) -> list[Any]:
    return [*name, reservation.tokens, str(reservation.money), reservation.nodes]


def budget_from_json(encoded: Any) -> Budget:
    """Decode the result of `Budget.to_json`.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: `encoded` has another form.
    """
    tokens, calls, money = encoded.get("unreported", (0, 0, "0"))
    waiting_calls = dict(map(_reservation_from_json, encoded.get("waiting", ())))
    return Budget(
        {kind: limit_from_json(kind, encoded[kind]) for kind in KINDS if kind in encoded},
        encoded.get("on_limit", "ask"),
        encoded.get("is_child", False),
        encoded.get("finish_reason"),
        dict(map(_reservation_from_json, encoded.get("reserved", ()))),
        waiting_calls,
        dict.fromkeys(islice(waiting_calls, encoded.get("requested", 0))),
        {call: usage_from_json(usage) for call, usage in encoded.get("reported", {}).items()},
        dict(encoded.get("added_by_child", {})),
        UsageTotals(tokens, calls, Decimal(money)),
        Decimal(encoded["token_price"]) if "token_price" in encoded else None,
        busy_time_from_json(encoded["busy"]) if "busy" in encoded else BusyTime(),
        encoded.get("is_timed", False),
        withdrawal_counts={(owner, key): count for owner, key, count in encoded.get("withdrawn", ())},
    )


def _reservation_from_json(encoded: Sequence[Any]) -> tuple[CallName, Reservation]:
    owner, key, tokens, money, nodes = encoded
    return (owner, key), Reservation(tokens, Decimal(money), nodes)


def _encoded_name(name: CallName) -> str:
    """Encode the name of a call as one text. The text for a call of a child run also contains the call id of the child
    run."""
    # The length prefix keeps the encoding unique, because ids may contain any text.
    return f"{len(name[0])}:{name[0]}/{name[1]}" if name[0] else name[1]
