"""One budget for a tree of runs: in whatever order, no more is spent than there is, and nothing waits idly.

Calls use less or more than estimated, are lost, or are cancelled while they wait; child runs end at any time; limits
are raised. At the end the remaining budget is exact to the token.
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
    """One run of the tree, with the grants and reports that it has not received yet."""

    name: str
    parent: "Run | None" = None
    budget: Budget = field(default_factory=lambda: Budget(is_child=True))
    used: Usage = NO_USAGE
    running: dict[str, int] = field(default_factory=dict)
    asked: dict[str, int] = field(default_factory=dict)
    ups: deque[tuple[str, BudgetReport]] = field(default_factory=deque)
    downs: deque[list[str]] = field(default_factory=deque)
    has_ended: bool = False

    def start(self, key: str) -> None:
        """Start a call; before it does, a run asks once more whether it may."""
        assert self.budget.reserve(("", key), Reservation(self.asked[key]), used=self.used, added_nodes=0)
        self.running[key] = self.asked.pop(key)

    def look(self, tree: "Tree") -> None:
        """Start calls and send reports and grants, as a run does at the end of every event."""
        for name in self.budget.grant_waiting(used=self.used, added_nodes=0):
            self.start(name)
        for owner, key in [*self.budget.reservations]:
            if not owner and key in self.asked:
                self.start(key)
        for call, keys in self.budget.next_grants().items():
            if not tree.runs[call].has_ended:
                tree.runs[call].downs.append(keys)
        if (up := self.budget.next_report()) is not None and self.parent is not None:
            self.parent.ups.append((self.name, up))


class Tree:
    """A run with a budget, two child runs, and a child of the first one."""

    def __init__(self, limits: Limits) -> None:
        self.limits: dict[Any, Limit] = {**limits}
        root = Run("root", budget=Budget({**limits}))
        left, right = Run("left", root), Run("right", root)
        self.runs = {run.name: run for run in (root, left, right, Run("below", left))}
        self.ended: dict[str, tuple[int, int]] = {}
        """Call that has ended -> tokens as estimated, and as used; of one that was lost the estimate twice."""
        self.counted = UsageTotals()
        """Usage of ended calls that the budget must count; unreported usage counts as estimated."""

    @property
    def root(self) -> Run:
        return self.runs["root"]

    def do(self, what: str, name: str, number: int) -> None:
        run = self.runs[name]
        if run.has_ended:
            return
        if what in ("ask", "cancel", "end", "lose"):
            self._do_call(what, run, number)
        else:
            self._do_run(what, run, number)
        if not run.has_ended:
            run.look(self)

    def _do_call(self, what: str, run: Run, number: int) -> None:
        match what:
            case "ask":
                key = f"{run.name}.{number}.{len(self.ended)}.{len(run.asked) + len(run.running)}"
                if key in run.running or key in run.asked or key in self.ended:
                    return
                run.asked[key] = number
                if run.budget.reserve(("", key), Reservation(number), used=run.used, added_nodes=0):
                    run.start(key)
            case "cancel" if run.asked:
                key = sorted(run.asked)[number % len(run.asked)]
                del run.asked[key]
                run.budget.settle(("", key), NO_USAGE)
            case "end" if run.running:
                self._end_call(run, sorted(run.running)[number % len(run.running)], number)
            case "lose" if run.running and "money" not in self.limits:
                self._lose_call(run, sorted(run.running)[number % len(run.running)])

    def _do_run(self, what: str, run: Run, number: int) -> None:
        match what:
            case "up" if run.ups:
                call, up = run.ups.popleft()
                if not self.runs[call].has_ended:
                    run.budget.apply_report(call, up, added_nodes=0)
            case "down" if run.downs:
                run.budget.apply_grants(run.downs.popleft())
            case "more" if run is self.root and not ("money" in self.limits and run.budget.token_price is None):
                # A grant before a price is known lets one more call of unknown price start.
                kind = [*self.limits][number % len(self.limits)]
                self.limits[kind] += number // 30
                run.budget.raise_by({kind: number // 30})
            case "close":
                self._close(run, number)
            case "crash" if run.name == "right" and "money" not in self.limits:
                self._crash(run, hears_all=bool(number % 2))
            case "carry":
                run.look(self)
                run.budget = budget_from_json(run.budget.to_json())

    def _end_call(self, run: Run, key: str, number: int) -> None:
        estimate = run.running.pop(key)
        tokens = number % (2 * estimate if number % 3 == 0 else estimate + 1)
        usage = Usage(calls=1, prompt_tokens=tokens, money=PRICE * tokens)
        run.used += usage
        self.ended[key] = estimate, tokens
        self.counted.add(Reservation(tokens, usage.money))
        run.budget.settle(("", key), usage)

    def _lose_call(self, run: Run, key: str) -> None:
        estimate = run.running.pop(key)
        self.ended[key] = estimate, estimate
        self.counted.add(Reservation(estimate))
        run.budget.settle(("", key), None)

    def _close(self, run: Run, number: int) -> None:
        """End a child run with all its calls at once; it reports only how it ended."""
        is_above = any(each.parent is run and not each.has_ended for each in self.runs.values())
        if run.parent is None or is_above or run.asked:
            return
        for key in sorted(run.running):
            self._end_call(run, key, number)
        self.end_run(run, run.used)

    def _crash(self, run: Run, *, hears_all: bool) -> None:
        """End a run between two reports; the parent may not have received the last report."""
        assert run.parent is not None
        if hears_all:
            self._hear_all(run.parent)
        for (owner, key), claim in run.parent.budget.reservations.items():
            if owner == run.name and key in self.ended:
                estimate, tokens = self.ended[key]
                self.counted.tokens += estimate - tokens
            elif owner == run.name:
                self.counted.add(claim)
        for key, estimate in run.running.items():
            self.ended[key] = estimate, estimate
        run.running.clear()
        run.asked.clear()
        run.has_ended = True
        self.end_run(run, NO_USAGE)

    def end_run(self, run: Run, usage: Usage) -> None:
        """End a child run; if it ended well, its earlier reports arrive first."""
        assert run.parent is not None
        if not run.has_ended:
            self._hear_all(run.parent)
        run.has_ended = True
        run.parent.used += usage
        run.parent.budget.end_child(run.name, usage)
        run.parent.look(self)

    def _hear_all(self, run: Run) -> None:
        while run.ups:
            self.do("up", run.name, 0)

    def rest(self) -> None:
        """Deliver everything and ends every call, until nothing moves."""
        while self._deliver() or self._end_some():
            pass

    def _deliver(self) -> bool:
        moved = False
        for run in self.runs.values():
            while not run.has_ended and (run.ups or run.downs):
                self.do("up" if run.ups else "down", run.name, 0)
                moved = True
        return moved

    def _end_some(self) -> bool:
        for run in self.runs.values():
            if run.running and not run.has_ended:
                self.do("end", run.name, 1)
                return True
        return False

    @property
    def running(self) -> list[int]:
        """Return the estimates of the calls that run."""
        return [tokens for run in self.runs.values() for tokens in run.running.values()]

    @property
    def waiting(self) -> list[int]:
        """Return the estimates of the calls that wait."""
        return [tokens for run in self.runs.values() for tokens in run.asked.values()]

    @property
    def left(self) -> Mapping[str, Any]:
        """Return the expected rest of each limit when nothing runs."""
        spent: Mapping[str, Any] = {
            "calls": self.counted.calls,
            "tokens": self.counted.tokens,
            "money": self.counted.money,
        }
        return {kind: limit - spent[kind] for kind, limit in self.limits.items()}

    def assert_within_limits(self) -> None:
        """Check that no more is spent and held back than there is, but for what calls use beyond their estimate."""
        over = sum(max(tokens - estimate, 0) for estimate, tokens in self.ended.values())
        tokens = sum(tokens for _, tokens in self.ended.values()) + sum(self.running)
        if "calls" in self.limits:
            assert len(self.ended) + len(self.running) <= self.limits["calls"]
        if "tokens" in self.limits:
            assert tokens <= self.limits["tokens"] + over
        if "money" in self.limits and self.root.budget.token_price is None:
            assert len(self.running) <= 1
        elif "money" in self.limits:
            # The cost of the first call was unknown before.
            first = next((tokens for _, tokens in self.ended.values() if tokens), 0)
            assert PRICE * tokens <= self.limits["money"] + PRICE * (over + first)

    def fits(self, tokens: int) -> bool:
        """Return whether there is enough for a call when nothing runs."""
        left = self.left
        price = self.root.budget.token_price
        is_affordable = "money" not in left or (left["money"] > 0 if price is None else price * tokens <= left["money"])
        return left.get("calls", 1) > 0 and tokens <= left.get("tokens", tokens) and is_affordable


LIMITS: list[Limits] = [{"calls": 6, "tokens": 400}, {"tokens": 400}, {"money": Decimal(150)}]

_ACTS = (
    *("ask", "ask", "ask", "end", "end", "lose", "cancel", "up", "up", "up", "down", "down"),
    *("carry", "close", "more", "crash"),
)
"""Kinds of events; the first ones are more frequent."""

EVENTS = st.lists(
    st.tuples(
        st.sampled_from(_ACTS),
        st.sampled_from(["root", "left", "right", "below"]),
        # So many that a few calls come to the very limit.
        st.sampled_from([1, 50, 99, 100, 101, 150]) | st.integers(1, 150),
    ),
    min_size=20,
    max_size=80,
)


_ASKED_AGAIN = [
    *[("ask", "left", 1)] * 2,
    *[("ask", "right", 1)] * 4,
    *[("end", "root", 1)] * 3,
    ("cancel", "left", 1),
    *[("ask", "root", 1)] * 4,
    *[("ask", "left", 1)] * 6,
]
"""A call is cancelled while leave for it is on its way, and asked for again."""


@pytest.mark.parametrize("limits", LIMITS, ids="+".join)
@settings(deadline=None)
@given(events=EVENTS)
@example(events=_ASKED_AGAIN)
def test_no_more_is_spent_than_there_is_and_rest_runs(limits: Limits, events: list[tuple[str, str, int]]) -> None:
    tree = Tree(limits)
    for what, name, number in events:
        tree.do(what, name, number)
        tree.assert_within_limits()
    tree.rest()
    tree.assert_within_limits()
    assert not tree.running
    assert not [tokens for tokens in tree.waiting if tree.fits(tokens)]
    assert bool(tree.waiting) == bool(tree.root.budget.exhausted_limits(used=tree.root.used, added_nodes=0))
    for name in ("below", "left", "right"):
        tree.rest()
        if not (run := tree.runs[name]).has_ended:
            run.asked.clear()
            tree.end_run(run, run.used)
    tree.rest()
    assert tree.root.budget.reservations == {}
    assert_left(tree)


def assert_left(tree: Tree) -> None:
    """Check that the root run knows the exact rest of the budget."""
    root, left = tree.root, tree.left

    def lacks(tokens: int) -> list[str]:
        return [*root.budget.exceeded_limits(Reservation(tokens), used=root.used, added_nodes=0)]

    if "calls" in left:
        assert ("calls" in lacks(1)) == (left["calls"] < 1)
    if "tokens" in left:
        # A claim of no tokens is no call of a model.
        assert "tokens" in lacks(max(left["tokens"] + 1, 1))
        assert left["tokens"] < 1 or "tokens" not in lacks(left["tokens"])
    if "money" in left and (token_price := root.budget.token_price) is not None:
        most = int(left["money"] / token_price)
        assert "money" in lacks(max(most + 1, 1))
        assert most < 1 or "money" not in lacks(most)
