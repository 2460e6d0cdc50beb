"""One budget for a tree of runs: in whatever order, no more is spent than there is, and nothing waits idly."""

from collections import deque
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from dagwright.plan.budget import Budget, Claim, Up, budget_from_json
from dagwright.plan.usage import NONE, Usage

CALLS, TOKENS = 4, 400


@dataclass
class Run:
    """One run of the tree, with what it has not been told yet."""

    name: str
    parent: "Run | None" = None
    budget: Budget = field(default_factory=lambda: Budget(is_below=True))
    used: Usage = NONE
    running: dict[str, int] = field(default_factory=dict)
    asked: dict[str, int] = field(default_factory=dict)
    ups: deque[tuple[str, Up]] = field(default_factory=deque)
    downs: deque[list[str]] = field(default_factory=deque)
    has_ended: bool = False

    def look(self, tree: "Tree") -> None:
        """Starts what may start, and hands on what there is to tell: what a run does at the end of every event."""
        for name in self.budget.free(used=self.used, grown=0):
            self._start(name)
        for owner, key in [*self.budget.held]:
            if not owner and key in self.asked:
                self._start(key)
        for call, keys in self.budget.take_down().items():
            if not tree.runs[call].has_ended:
                tree.runs[call].downs.append(keys)
        if (up := self.budget.take_up()) is not None and self.parent is not None:
            self.parent.ups.append((self.name, up))

    def _start(self, key: str) -> None:
        self.running[key] = self.asked.pop(key)


class Tree:
    """A run with a budget, two runs below it, and one below the first of them."""

    def __init__(self) -> None:
        root = Run("root", budget=Budget({"calls": CALLS, "tokens": TOKENS}))
        left, right = Run("left", root), Run("right", root)
        self.runs = {run.name: run for run in (root, left, right, Run("below", left))}
        self.ended: list[Usage] = []

    def do(self, what: str, name: str, number: int) -> None:
        run = self.runs[name]
        if run.has_ended:
            return
        match what:
            case "ask":
                key = f"{name}/{len(run.running) + len(run.asked) + number}.{len(self.ended)}"
                if key in run.running or key in run.asked:
                    return
                run.asked[key] = number
                if run.budget.claim(("", key), Claim(number), used=run.used, grown=0):
                    run.running[key] = run.asked.pop(key)
            case "end" if run.running:
                self._end_call(run, sorted(run.running)[number % len(run.running)], number)
            case "up" if run.ups:
                call, up = run.ups.popleft()
                if not self.runs[call].has_ended:
                    run.budget.take_told(call, up, grown=0)
            case "down" if run.downs:
                run.budget.take_given(run.downs.popleft())
            case "close" if run.parent is not None:
                self._close(run, number)
                return
            case "carry":
                run.look(self)
                run.budget = budget_from_json(run.budget.to_json())
        run.look(self)

    def _close(self, run: Run, number: int) -> None:
        """Ends a run with its last call, in one moment: it tells no more than how it ended."""
        assert run.parent is not None
        below = any(each.parent is run and not each.has_ended for each in self.runs.values())
        if below or run.ups or run.asked or len(run.running) != 1:
            return
        self._end_call(run, next(iter(run.running)), number)
        while run.parent.ups:
            self.do("up", run.parent.name, 0)
        run.has_ended = True
        run.parent.used += run.used
        run.parent.budget.end_below(run.name, run.used)
        run.parent.look(self)

    def _end_call(self, run: Run, key: str, number: int) -> None:
        usage = Usage(calls=1, prompt_tokens=number % (run.running.pop(key) + 1))
        run.used += usage
        self.ended.append(usage)
        run.budget.settle(("", key), usage)

    def drain(self) -> None:
        """Delivers everything and ends every call and every run below."""
        for name in ("below", "left", "right"):
            while self._deliver() or self._end_some():
                pass
            run = self.runs[name]
            assert run.parent is not None
            if run.has_ended:
                continue
            run.has_ended = True
            run.parent.used += run.used
            run.parent.budget.end_below(name, run.used)
            run.parent.look(self)
        while self._deliver() or self._end_some():
            pass

    def _deliver(self) -> bool:
        moved = False
        for run in self.runs.values():
            while run.ups or run.downs:
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
    def spent(self) -> tuple[int, int]:
        """Returns calls and tokens: of those that have ended, and of those that run as much as was estimated."""
        running = [tokens for run in self.runs.values() for tokens in run.running.values()]
        tokens = sum(usage.tokens for usage in self.ended)
        return len(self.ended) + len(running), tokens + sum(running)


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["ask", "ask", "end", "up", "down", "carry", "close"]),
        st.sampled_from(["root", "left", "right", "below"]),
        st.integers(1, 150),
    ),
    max_size=60,
)


@given(events=EVENTS)
def test_no_more_is_spent_than_there_is_and_what_fits_goes_on(events: list[tuple[str, str, int]]) -> None:
    tree = Tree()
    for what, name, number in events:
        tree.do(what, name, number)
        calls, tokens = tree.spent
        assert calls <= CALLS
        assert tokens <= TOKENS
    root = tree.runs["root"]
    while tree._deliver() or tree._end_some():
        pass
    waiting = [tokens for run in tree.runs.values() for tokens in run.asked.values()]
    calls, tokens = tree.spent
    assert all(calls + 1 > CALLS or tokens + each > TOKENS for each in waiting)
    assert bool(waiting) == bool(root.budget.short_of(used=root.used, grown=0))
    tree.drain()
    assert root.budget.held == {}
    assert (root.used.calls, root.used.tokens) == tree.spent
