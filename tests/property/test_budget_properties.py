"""One budget for a tree of runs: in any order of events, the limits hold, and no affordable call waits.

Calls use less or more than estimated, are lost, or are cancelled while they wait. Child runs end at any time, and
limits are raised. At the end, the remaining budget is exact to the token.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dagwright.core.model.budget_limits import Limit, Limits
from dagwright.core.model.states import NO_USAGE, Usage
from dagwright.features.budgets.budget import Budget, BudgetReport, Reservation, UsageTotals, budget_from_json

PRICE = Decimal("0.5")
"""Price of a token."""


@dataclass
class Run:
    """One run of the tree, with the grants and reports that the run has not received yet."""

    name: str
    parent: "Run | None" = None
    budget: Budget = field(default_factory=lambda: Budget(is_child=True))
    used: Usage = NO_USAGE
    running_calls: dict[str, int] = field(default_factory=dict)
    """Running call -> estimated tokens."""
    waiting_calls: dict[str, int] = field(default_factory=dict)
    """Waiting call -> estimated tokens."""
    reports: deque[tuple[str, BudgetReport]] = field(default_factory=deque)
    grants: deque[list[str]] = field(default_factory=deque)
    has_ended: bool = False

    def start(self, key: str) -> None:
        """Start a waiting call. The budget must accept the reservation of the call."""
        assert self.budget.reserve(("", key), Reservation(self.waiting_calls[key]), run_usage=self.used, added_count=0)
        self.running_calls[key] = self.waiting_calls.pop(key)

    def react(self, tree: "Tree") -> None:
        """Start calls, and send grants and a report, as a run does after every event."""
        for name in self.budget.grant_waiting(run_usage=self.used, added_count=0):
            self.start(name)
        for child_name, key in [*self.budget.reservations]:
            if not child_name and key in self.waiting_calls:
                self.start(key)
        for child, keys in self.budget.next_grants().items():
            if not tree.runs[child].has_ended:
                tree.runs[child].grants.append(keys)
        if (report := self.budget.next_report()) is not None and self.parent is not None:
            self.parent.reports.append((self.name, report))


class Tree:
    """A root run with a budget, two child runs, and a child run of the first child."""

    def __init__(self, limits: Limits) -> None:
        self.limits: dict[Any, Limit] = {**limits}
        root = Run("root", budget=Budget({**limits}))
        left, right = Run("left", root), Run("right", root)
        self.runs = {run.name: run for run in (root, left, right, Run("grandchild", left))}
        self.ended_calls: dict[str, tuple[int, int]] = {}
        """Ended call -> estimated tokens and used tokens. For a lost call, both are the estimate."""
        self.expected_totals = UsageTotals()
        """Usage of ended calls as the budget must count it: unreported usage counts as estimated."""

    @property
    def root(self) -> Run:
        return self.runs["root"]

    def apply(self, event: str, name: str, number: int) -> None:
        """Apply an event to the run `name`; `number` is a number of tokens, or chooses a call or a variant."""
        run = self.runs[name]
        if run.has_ended:
            return
        if event in ("request", "cancel", "end", "lose"):
            self._apply_to_call(event, run, number)
        else:
            self._apply_to_run(event, run, number)
        if not run.has_ended:
            run.react(self)

    def _apply_to_call(self, event: str, run: Run, number: int) -> None:
        match event:
            case "request":
                key = f"{run.name}.{number}.{len(self.ended_calls)}.{len(run.waiting_calls) + len(run.running_calls)}"
                if key in run.running_calls or key in run.waiting_calls or key in self.ended_calls:
                    return
                run.waiting_calls[key] = number
                if run.budget.reserve(("", key), Reservation(number), run_usage=run.used, added_count=0):
                    run.start(key)
            case "cancel" if run.waiting_calls:
                key = sorted(run.waiting_calls)[number % len(run.waiting_calls)]
                del run.waiting_calls[key]
                run.budget.settle(("", key), NO_USAGE)
            case "end" if run.running_calls:
                self._end_call(run, sorted(run.running_calls)[number % len(run.running_calls)], number)
            case "lose" if run.running_calls and "money" not in self.limits:
                self._lose_call(run, sorted(run.running_calls)[number % len(run.running_calls)])

    def _apply_to_run(self, event: str, run: Run, number: int) -> None:
        match event:
            case "report" if run.reports:
                child, report = run.reports.popleft()
                if not self.runs[child].has_ended:
                    run.budget.apply_report(child, report, added_count=0)
            case "grant" if run.grants:
                run.budget.apply_grants(run.grants.popleft())
            case "raise_limit" if run is self.root and not ("money" in self.limits and run.budget.token_price is None):
                # Raising the limit before a price is known would let another call of unknown price start.
                kind = [*self.limits][number % len(self.limits)]
                self.limits[kind] += number // 30
                run.budget.raise_limits({kind: number // 30})
            case "close":
                self._close(run, number)
            case "crash" if run.name == "right" and "money" not in self.limits:
                self._crash(run, parent_receives_reports=bool(number % 2))
            case "continue":
                run.react(self)
                run.budget = budget_from_json(run.budget.to_json())

    def _end_call(self, run: Run, key: str, number: int) -> None:
        estimate = run.running_calls.pop(key)
        tokens = number % (2 * estimate if number % 3 == 0 else estimate + 1)
        usage = Usage(calls=1, prompt_tokens=tokens, money=PRICE * tokens)
        run.used += usage
        self.ended_calls[key] = estimate, tokens
        self.expected_totals.add(Reservation(tokens, usage.money))
        run.budget.settle(("", key), usage)

    def _lose_call(self, run: Run, key: str) -> None:
        estimate = run.running_calls.pop(key)
        self.ended_calls[key] = estimate, estimate
        self.expected_totals.add(Reservation(estimate))
        run.budget.settle(("", key), None)

    def _close(self, run: Run, number: int) -> None:
        """End a child run and all its calls at once; only the end of the run reports the usage of these calls."""
        has_open_child = any(each.parent is run and not each.has_ended for each in self.runs.values())
        if run.parent is None or has_open_child or run.waiting_calls:
            return
        for key in sorted(run.running_calls):
            self._end_call(run, key, number)
        self.end_run(run, run.used)

    def _crash(self, run: Run, *, parent_receives_reports: bool) -> None:
        """End a run between two reports.

        Args:
            parent_receives_reports: whether the parent still receives the reports that the run has sent.
        """
        assert run.parent is not None
        if parent_receives_reports:
            self._deliver_reports(run.parent)
        for (child_name, key), reservation in run.parent.budget.reservations.items():
            if child_name == run.name and key in self.ended_calls:
                estimate, tokens = self.ended_calls[key]
                self.expected_totals.tokens += estimate - tokens
            elif child_name == run.name:
                self.expected_totals.add(reservation)
        for key, estimate in run.running_calls.items():
            self.ended_calls[key] = estimate, estimate
        run.running_calls.clear()
        run.waiting_calls.clear()
        run.has_ended = True
        self.end_run(run, NO_USAGE)

    def end_run(self, run: Run, usage: Usage) -> None:
        """End a child run. The parent receives pending reports first, unless the child run crashed."""
        assert run.parent is not None
        if not run.has_ended:
            self._deliver_reports(run.parent)
        run.has_ended = True
        run.parent.used += usage
        run.parent.budget.end_child(run.name, usage)
        run.parent.react(self)

    def _deliver_reports(self, run: Run) -> None:
        while run.reports:
            self.apply("report", run.name, 0)

    def end_all_calls(self) -> None:
        """Deliver all messages and end all calls, until nothing changes."""
        while self._deliver_messages() or self._end_first_call():
            pass

    def _deliver_messages(self) -> bool:
        has_delivered = False
        for run in self.runs.values():
            while not run.has_ended and (run.reports or run.grants):
                self.apply("report" if run.reports else "grant", run.name, 0)
                has_delivered = True
        return has_delivered

    def _end_first_call(self) -> bool:
        for run in self.runs.values():
            if run.running_calls and not run.has_ended:
                self.apply("end", run.name, 1)
                return True
        return False

    @property
    def running_estimates(self) -> list[int]:
        """Estimates of the running calls."""
        return [tokens for run in self.runs.values() for tokens in run.running_calls.values()]

    @property
    def waiting_estimates(self) -> list[int]:
        """Estimates of the waiting calls."""
        return [tokens for run in self.runs.values() for tokens in run.waiting_calls.values()]

    @property
    def remaining(self) -> Mapping[str, Any]:
        """Remaining part of each limit after the usage of the ended calls."""
        spent: Mapping[str, Any] = {
            "calls": self.expected_totals.calls,
            "tokens": self.expected_totals.tokens,
            "money": self.expected_totals.money,
        }
        return {kind: limit - spent[kind] for kind, limit in self.limits.items()}

    def assert_within_limits(self) -> None:
        """Check that spent and reserved budget is within the limits, except for usage above the estimates."""
        excess = sum(max(tokens - estimate, 0) for estimate, tokens in self.ended_calls.values())
        tokens = sum(tokens for _, tokens in self.ended_calls.values()) + sum(self.running_estimates)
        if "calls" in self.limits:
            assert len(self.ended_calls) + len(self.running_estimates) <= self.limits["calls"]
        if "tokens" in self.limits:
            assert tokens <= self.limits["tokens"] + excess
        if "money" in self.limits and self.root.budget.token_price is None:
            assert len(self.running_estimates) <= 1
        elif "money" in self.limits:
            # The price was unknown until the first call ended.
            tokens_before_price = next((tokens for _, tokens in self.ended_calls.values() if tokens), 0)
            assert PRICE * tokens <= self.limits["money"] + PRICE * (excess + tokens_before_price)

    def fits(self, tokens: int) -> bool:
        """Return whether a call with this number of tokens fits into the remaining budget if no other call runs."""
        remaining = self.remaining
        price = self.root.budget.token_price
        is_affordable = "money" not in remaining or (
            remaining["money"] > 0 if price is None else price * tokens <= remaining["money"]
        )
        return remaining.get("calls", 1) > 0 and tokens <= remaining.get("tokens", tokens) and is_affordable


LIMITS: list[Limits] = [{"calls": 6, "tokens": 400}, {"tokens": 400}, {"money": Decimal(150)}]

_EVENT_KINDS = (
    *("request", "request", "request", "end", "end", "lose", "cancel", "report", "report", "report", "grant", "grant"),
    *("continue", "close", "raise_limit", "crash"),
)
"""Kinds of events; a repeated kind is more frequent."""

EVENTS = st.lists(
    st.tuples(
        st.sampled_from(_EVENT_KINDS),
        st.sampled_from(["root", "left", "right", "grandchild"]),
        # The first values let a few calls reach a limit exactly.
        st.sampled_from([1, 50, 99, 100, 101, 150]) | st.integers(1, 150),
    ),
    min_size=20,
    max_size=80,
)


_EVENTS_WITH_A_REPEATED_REQUEST = [
    *[("request", "left", 1)] * 2,
    *[("request", "right", 1)] * 4,
    *[("end", "root", 1)] * 3,
    ("cancel", "left", 1),
    *[("request", "root", 1)] * 4,
    *[("request", "left", 1)] * 6,
]
"""A call is cancelled while its grant is in transit, and then requested again."""


@pytest.mark.parametrize("limits", LIMITS, ids="+".join)
@settings(deadline=None)
@given(events=EVENTS)
@example(events=_EVENTS_WITH_A_REPEATED_REQUEST)
def test_limits_hold_and_every_affordable_call_runs(limits: Limits, events: list[tuple[str, str, int]]) -> None:
    tree = Tree(limits)
    for event, name, number in events:
        tree.apply(event, name, number)
        tree.assert_within_limits()
    tree.end_all_calls()
    tree.assert_within_limits()
    assert not tree.running_estimates
    assert not [tokens for tokens in tree.waiting_estimates if tree.fits(tokens)]
    assert bool(tree.waiting_estimates) == bool(
        tree.root.budget.exhausted_limits(run_usage=tree.root.used, added_count=0)
    )
    for name in ("grandchild", "left", "right"):
        tree.end_all_calls()
        if not (run := tree.runs[name]).has_ended:
            run.waiting_calls.clear()
            tree.end_run(run, run.used)
    tree.end_all_calls()
    assert tree.root.budget.reservations == {}
    assert_remaining_budget_is_exact(tree)


def assert_remaining_budget_is_exact(tree: Tree) -> None:
    """Check that the budget of the root run has the exact remaining amounts."""
    root, remaining = tree.root, tree.remaining

    def exceeded_limits(tokens: int) -> list[str]:
        return [*root.budget.exceeded_limits(Reservation(tokens), run_usage=root.used, added_count=0)]

    if "calls" in remaining:
        assert ("calls" in exceeded_limits(1)) == (remaining["calls"] < 1)
    if "tokens" in remaining:
        # A reservation of zero tokens exceeds no limit.
        assert "tokens" in exceeded_limits(max(remaining["tokens"] + 1, 1))
        assert remaining["tokens"] < 1 or "tokens" not in exceeded_limits(remaining["tokens"])
    if "money" in remaining and (token_price := root.budget.token_price) is not None:
        max_tokens = int(remaining["money"] / token_price)
        assert "money" in exceeded_limits(max(max_tokens + 1, 1))
        assert max_tokens < 1 or "money" not in exceeded_limits(max_tokens)
