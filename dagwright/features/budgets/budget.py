"""How much a run may use: what is left of it, what is held back for calls that go on, and who waits for more.

A call is estimated and held back before it starts, and settled by what it has told when it ends. The run above all has
the budget; a run below asks it for each call, through the runs between, and tells how each ended. So whatever runs
where, one place knows all, and at no moment is more held back than is there. Nodes that a run has added, and time, are
limited where a node would start: nothing is held back of them.

The limit can be passed only by how much the calls in flight use more than was estimated, attempts that fail with an
answer of no use among them; by tools and agents that ask models by themselves, whose use is known when they end; and by
the one call that makes the answer of what there is.

It must not import the scheduler.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import islice
from typing import Any, get_args

from dagwright.core.model.budget_limits import (
    KINDS,
    Kind,
    Limit,
    OnLimit,
    limit_from_json,
    limit_to_json,
    limit_words,
    limits_from_json,
    most_of,
)
from dagwright.core.model.compiled import CompiledNode
from dagwright.core.model.tools import AGENT_PREFIX, MODEL_TOOL, PLAN_READER, PURPOSE_ANSWER, ToolDeclaration
from dagwright.core.model.usage import NONE, Usage, usage_from_json
from dagwright.features.budgets.busy_time import BusyTime, busy_time_from_json

ASKED_AT_ONCE = 250
"""Calls for which a run below asks at once: what it tells has to fit into one message, whatever waits there."""
_OF_CALLS: Sequence[Kind] = ("tokens", "money", "calls")
"""What only calls of models use."""
_NO_MONEY = Decimal(0)


def asks_models(node: CompiledNode, tools: Mapping[str, ToolDeclaration]) -> bool:
    """Tells whether a node is there to ask models.

    Args:
        tools: those of its plan.
    """
    if node.kind != "tool":
        return False
    declared = tools.get(node.tool)
    is_declared = declared is not None and declared.asks_models
    return is_declared or node.tool == MODEL_TOOL or node.tool.startswith(AGENT_PREFIX)


def makes_answer(node: CompiledNode) -> bool:
    """Tells whether a node makes the answer of a run out of what there is."""
    labels = node.arguments.get("labels")
    return node.tool == MODEL_TOOL and isinstance(labels, Mapping) and labels.get("purpose") == PURPOSE_ANSWER


def is_needed_to_finish(node: CompiledNode) -> bool:
    """Tells whether a node runs also in a run that finishes with what there is."""
    return makes_answer(node) or node.tool == PLAN_READER


@dataclass(frozen=True, slots=True)
class Claim:
    """What is held back for one call, or waited for.

    Args:
        tokens: about how many it will use; none if it is no call of a model, and then nothing is held back.
        money: what of the money is held back for it, once it is.
        nodes: by how many nodes the run has grown with that of the call; `None` counts all that were added.
    """

    tokens: int
    money: Decimal = _NO_MONEY
    nodes: int | None = None


Name = tuple[str, str]
"""The call of the sub-plan that asks, empty for the run's own; and how that calls its call."""


@dataclass(slots=True)
class Lost:
    """What calls have used of which nobody will hear: as much as was held back for them."""

    tokens: int = 0
    calls: int = 0
    money: Decimal = _NO_MONEY

    def take(self, claim: Claim) -> None:
        """Takes what was held back for a call."""
        self.tokens, self.calls, self.money = self.tokens + claim.tokens, self.calls + 1, self.money + claim.money


@dataclass(slots=True)
class Up:
    """What a run below has to tell the one above.

    Args:
        claims: calls that wait, and about how many tokens each will use.
        settled: how others ended; `None`: nobody knows.
        rests: whether nothing runs there and people are waited for, if that has changed.
    """

    claims: dict[str, int] = field(default_factory=dict)
    settled: dict[str, Usage | None] = field(default_factory=dict)
    rests: bool | None = None


@dataclass(slots=True)
class Budget:
    """The budget of one run, or of a run below one that has a budget.

    Args:
        limits: what is limited; nothing in a run below.
        on_limit: whether somebody is asked for more at the limit, or the run finishes with what there is.
        is_below: the run above has the budget.
        is_timed: of a run below, that its run above has a limit of time, and is told when this one rests.
        finishing: why the run finishes with what there is, if it does.
        held: what is held back for calls in flight, and for those that the runs below may start.
        waiting: calls that wait, in order; those of the run itself by the id of their task.
        asked: in a run below, those of them for which the run above was asked: the first ones.
        withdrawn: in a run below, call -> how often it was asked for and then cancelled while it waited.
        told: call of a sub-plan that has not ended -> what it has told of its calls so far.
        grown_below: call of a sub-plan -> how many nodes it has added.
        rate: the most that a token has cost so far; `None` while no cost is known.
        busy: how long the run has gone on.
        up: what the run above has to be told.
        down: call of a sub-plan -> which of its calls may start; it has to be told.
    """

    limits: dict[Kind, Limit] = field(default_factory=dict)
    on_limit: OnLimit = "ask"
    is_below: bool = False
    finishing: str | None = None
    held: dict[Name, Claim] = field(default_factory=dict)
    waiting: dict[Name, Claim] = field(default_factory=dict)
    asked: dict[Name, None] = field(default_factory=dict)
    withdrawn: dict[Name, int] = field(default_factory=dict, kw_only=True)
    told: dict[str, Usage] = field(default_factory=dict)
    grown_below: dict[str, int] = field(default_factory=dict)
    lost: Lost = field(default_factory=Lost)
    rate: Decimal | None = None
    busy: BusyTime = field(default_factory=BusyTime)
    is_timed: bool = False
    up: Up = field(default_factory=Up)
    down: dict[str, list[str]] = field(default_factory=dict)
    changes: int = field(default=0, init=False, compare=False)
    """How often anything has changed on which it hangs who may start."""
    _held_tokens: int = field(default=0, init=False, compare=False)
    _held_money: Decimal = field(default=_NO_MONEY, init=False, compare=False)
    _told: Usage = field(default=NONE, init=False, compare=False)

    def __post_init__(self) -> None:
        for claim in self.held.values():
            self._held_tokens, self._held_money = self._held_tokens + claim.tokens, self._held_money + claim.money
        for usage in self.told.values():
            self._told += usage

    # Calls.

    @property
    def limits_all_nodes(self) -> bool:
        """Tells whether other nodes have to wait as well, and not only those that ask models."""
        return "nodes" in self.limits or "time" in self.limits

    def claim(self, name: Name, claim: Claim, *, used: Usage, grown: int) -> bool:
        """Tells whether a call may start, and holds back what it needs; else it waits.

        Args:
            claim: what it needs, its money left open.
            used: by all calls of the run that have ended.
            grown: nodes that the run has added itself.
        """
        if name in self.held:
            return True
        claim = self.waiting.get(name) or claim
        if not self.is_below and not self.lacking(claim, used=used, grown=grown):
            self.waiting.pop(name, None)
            self._hold(name, self._with_money(claim, used=used))
            return True
        self.waiting[name] = claim
        self.changes += 1
        return False

    def settle(self, name: Name, usage: Usage | None) -> None:
        """Takes the end of a call.

        Args:
            usage: what it has used; `None` if nobody will ever hear.
        """
        self.changes += 1
        if self.is_below:
            self.up.settled[self._key(name)] = usage
        if name in self.asked:
            self.withdrawn[name] = self.withdrawn.get(name, 0) + 1
        self._forget_waiting(name)
        claim = self._give_back(name)
        if not self.is_below and usage is None and claim is not None:
            self.lost.take(claim)
        if usage is not None and usage.tokens and usage.cost is not None:
            self.rate = max(self.rate or _NO_MONEY, usage.cost / usage.tokens)

    def take_told(self, call: str, told: Up, *, grown: int) -> None:
        """Takes what a sub-plan that runs tells of its calls.

        Args:
            grown: nodes that it, and those below it, have added.
        """
        self.changes += 1
        self.grown_below[call] = grown
        if told.rests is not None:
            self.busy.take_told(call, rests=told.rests)
        for key, usage in told.settled.items():
            if usage is not None:
                self.told[call] = self.told.get(call, NONE) + usage
                self._told += usage
            self.settle((call, key), usage)
        for key, tokens in told.claims.items():
            # What asks anew was settled first, maybe in the same message.
            if (call, key) not in self.held:
                self.waiting[call, key] = Claim(tokens)

    def take_given(self, keys: Sequence[str]) -> None:
        """Takes leave for calls to start; those of runs below are told on."""
        self.changes += 1
        # Whoever gives it knows that this run goes on.
        self.busy.told = False
        names = {self._key(name): name for name in self.waiting}
        for key in keys:
            if (name := names.pop(key, None)) is not None:
                claim = self.waiting[name]
                self._forget_waiting(name)
                self._hold(name, claim)
                self._give_down(name)

    def _give_down(self, name: Name) -> None:
        """Lets a call of a run below start, which goes on with it."""
        if name[0]:
            self.busy.take_told(name[0], rests=False)
            self.down.setdefault(name[0], []).append(name[1])

    def end_below(self, call: str, usage: Usage) -> None:
        """Takes the end of a sub-plan, of which the book of the run has from now on all that it has used.

        Args:
            usage: that; nothing if nobody told, and then what was told before counts.
        """
        self.changes += 1
        told = self.told.pop(call, NONE)
        self._told = self._told.less(told)
        self.down.pop(call, None)
        self.busy.take_told(call, rests=False)
        # What nobody told at its end: all of it, or that of a run below it which ended without a word.
        unheard = told.less(usage)
        self.lost.tokens, self.lost.calls = self.lost.tokens + unheard.tokens, self.lost.calls + unheard.calls
        self.lost.money += unheard.money
        for name in [name for name in (*self.held, *self.waiting) if name[0] == call]:
            self.settle(name, NONE if usage.is_something else None)
        if self.is_below and (untold := usage.less(told)).is_something:
            # It ended before it could tell of its last calls, and the run above hears of its end much later.
            self.up.settled[_path((call, ""))] = untold

    # What is left.

    def lacking(self, claim: Claim, *, used: Usage, grown: int) -> list[Kind]:
        """Returns of what there is too little for a call, with what is held back for others."""
        return self._lacking(claim, self._room(used), grown=grown)

    def _room(self, used: Usage, *, is_all: bool = False) -> dict[Kind, Limit | None]:
        """Returns how much is left of each limit, of nodes for the run itself; `None` if nobody knows.

        Args:
            is_all: also what is held back for others.
        """
        spent = self._spent(used)
        found: dict[Kind, Limit | None] = {}
        for kind, limit in self.limits.items():
            if kind == "tokens":
                found[kind] = limit - spent.tokens - (0 if is_all else self._held_tokens)
            elif kind == "calls":
                found[kind] = limit - spent.calls - (0 if is_all else len(self.held))
            elif kind == "nodes":
                found[kind] = limit - sum(self.grown_below.values())
            elif kind == "time":
                found[kind] = limit - Decimal(str(self.busy.seconds))
            else:
                left = Decimal(limit) - spent.money - (_NO_MONEY if is_all else self._held_money)
                found[kind] = None if self.has_unknown_cost(used) else left
        return found

    def _lacking(self, claim: Claim, room: Mapping[Kind, Limit | None], *, grown: int) -> list[Kind]:
        if self.finishing is not None:
            return [*KINDS]
        kinds = [kind for kind in room if claim.tokens or kind not in _OF_CALLS]
        return [kind for kind in kinds if (left := room[kind]) is None or self._is_over(claim, kind, left, grown=grown)]

    def _is_over(self, claim: Claim, kind: Kind, left: Limit, *, grown: int) -> bool:
        if kind == "nodes":
            return (grown if claim.nodes is None else claim.nodes) > left
        if kind == "tokens":
            return claim.tokens > left
        if kind == "money" and self.rate is not None:
            return self.rate * claim.tokens > left
        # As long as no price is known a call has all the money that is left for itself.
        return left <= 0

    def has_unknown_cost(self, used: Usage) -> bool:
        """Tells whether there are calls of which nobody knows what they cost."""
        return used.cost is None or self._told.cost is None

    def free(self, *, used: Usage, grown: int) -> list[str]:
        """Lets go on what waits and has enough now; returns the run's own tasks of it, in order."""
        tasks: list[str] = []
        if self.is_below:
            return tasks
        room = self._room(used)
        for name, claim in [*self.waiting.items()]:
            if self._lacking(claim, room, grown=grown):
                continue
            del self.waiting[name]
            self._hold(name, self._with_money(claim, used=used))
            room = self._room(used)
            self._give_down(name)
            if not name[0]:
                tasks.append(name[1])
        return tasks

    def short_of(self, *, used: Usage, grown: int, name: Name | None = None) -> list[Kind]:
        """Returns of what too little is left for some call that waits, whatever those in flight give back.

        Args:
            name: the call; `None` looks at all.
        """
        if self.is_below or self.finishing is not None:
            return []
        room = self._room(used, is_all=True)
        claims = self.waiting.values() if name is None else (self.waiting[name],)
        short = {kind for claim in claims for kind in self._lacking(claim, room, grown=grown)}
        return [kind for kind in KINDS if kind in short]

    def reasons(self, *, used: Usage, grown: int) -> dict[str, str]:
        """Returns why the run's own calls wait, in words, by their task."""
        room = self._room(used)
        words: dict[tuple[Kind, ...], str] = {}
        found: dict[str, str] = {}
        for (owner, task_id), claim in self.waiting.items():
            if not owner:
                kinds = tuple(self._lacking(claim, room, grown=grown))
                if kinds not in words:
                    words[kinds] = self.words(kinds, used=used, grown=grown)
                found[task_id] = words[kinds]
        return found

    def _with_money(self, claim: Claim, *, used: Usage) -> Claim:
        """Returns a claim with what of the money is to be held back for it."""
        money = _NO_MONEY
        if (limit := self.limits.get("money")) is not None:
            left = Decimal(limit) - self._spent(used).money - self._held_money
            money = left if self.rate is None else self.rate * claim.tokens
        return replace(claim, money=money)

    def _hold(self, name: Name, claim: Claim) -> None:
        if not claim.tokens:
            return
        self.held[name] = claim
        self._held_tokens, self._held_money = self._held_tokens + claim.tokens, self._held_money + claim.money

    def _give_back(self, name: Name) -> Claim | None:
        claim = self.held.pop(name, None)
        if claim is not None:
            self._held_tokens, self._held_money = self._held_tokens - claim.tokens, self._held_money - claim.money
        if not self.held:
            self._held_money = _NO_MONEY
        return claim

    def _spent(self, used: Usage) -> Lost:
        told, lost = self._told, self.lost
        money = used.money + told.money + lost.money
        return Lost(used.tokens + told.tokens + lost.tokens, used.calls + told.calls + lost.calls, money)

    def words(self, kinds: Sequence[Kind], *, used: Usage, grown: int) -> str:
        """Returns how much of each limit has been used, in words."""
        spent = self._spent(used)
        amounts: Mapping[Kind, Any] = {
            "tokens": f"{spent.tokens:,}",
            "money": spent.money,
            "calls": f"{spent.calls:,}",
            "nodes": f"{grown + sum(self.grown_below.values()):,}",
            "time": limit_words("time", Decimal(str(self.busy.seconds))),
        }
        limits = [(kind, limit_words(kind, self.limits[kind])) for kind in kinds if kind in self.limits]
        told = [f"{kind}: {amounts[kind]} of {limit} used" for kind, limit in limits]
        if "money" in kinds and self.has_unknown_cost(used):
            told.append(
                "the cost of some calls is not known; give their model a price in the table of DAGWRIGHT_PRICES"
            )
        return ", ".join(told)

    def raise_by(self, more: Mapping[Kind, Limit | None]) -> None:
        """Gives more of what is limited; null is as much as it takes."""
        self.changes += 1
        for kind, added in more.items():
            limit = self.limits.pop(kind, None)
            if limit is not None and added is not None:
                self.limits[kind] = min(limit + added, most_of(kind))

    def set_limits(self, limits: Mapping[Kind, Limit | None]) -> None:
        """Sets limits in the place of others; null is as much as it takes."""
        self.changes += 1
        for kind, limit in limits.items():
            self.limits.pop(kind, None)
            if limit is not None:
                self.limits[kind] = limit

    def _forget_waiting(self, name: Name) -> None:
        self.waiting.pop(name, None)
        self.asked.pop(name, None)

    def _key(self, name: Name) -> str:
        """Return how the run above calls a call.

        A call that asks again after it was withdrawn has another key: leave for the earlier one may be on its way.
        """
        count = self.withdrawn.get(name, 0)
        return f"~{count}:{_path(name)}" if count else _path(name)

    def take_up(self) -> Up | None:
        """Returns what the run above has to be told, once; it is asked for so many calls at a time."""
        up, self.up = self.up, Up()
        if self.is_below and len(self.asked) < min(len(self.waiting), ASKED_AT_ONCE):
            for name, claim in islice(self.waiting.items(), ASKED_AT_ONCE):
                if name not in self.asked:
                    self.asked[name] = None
                    up.claims[self._key(name)] = claim.tokens
        if self.is_timed and self.busy.rests is not self.busy.told:
            up.rests = self.busy.told = self.busy.rests
        return up if up.claims or up.settled or up.rests is not None else None

    def take_down(self) -> dict[str, list[str]]:
        """Returns which calls of sub-plans may start, once."""
        down, self.down = self.down, {}
        return down

    # From one execution to the next, and in the input of a run.

    def to_json(self) -> dict[str, Any]:
        """Returns the budget as JSON, without what is empty."""
        parts = {
            **options_to_json(self),
            "below": self.is_below,
            "timed": self.is_timed,
            "finishing": self.finishing,
            "held": [_claim_to_json(name, claim) for name, claim in self.held.items()],
            "waiting": [_claim_to_json(name, claim) for name, claim in self.waiting.items()],
            "told": {call: usage.to_json() for call, usage in self.told.items()},
            "grown_below": self.grown_below,
            "lost": [self.lost.tokens, self.lost.calls, str(self.lost.money)],
            "rate": None if self.rate is None else str(self.rate),
            "asked": len(self.asked),
            "withdrawn": [[*name, count] for name, count in self.withdrawn.items()],
            "busy": None if self.busy == BusyTime() else self.busy.to_json(),
        }
        return {name: part for name, part in parts.items() if part not in (None, False, {}, [])}


def budget_of_options(value: Any) -> Budget:
    """Returns the budget that somebody gives a run: limits, and `on_limit`.

    Raises:
        ValueError: it is none; the text says which field, and what was expected.
    """
    if not isinstance(value, Mapping) or "on_limit" not in value:
        return Budget({kind: limit for kind, limit in limits_from_json(value).items() if limit is not None})
    rest = {name: part for name, part in value.items() if name != "on_limit"}
    for on_limit in get_args(OnLimit):
        if value["on_limit"] == on_limit:
            limits = {kind: limit for kind, limit in limits_from_json(rest).items() if limit is not None}
            return Budget(limits, on_limit)
    raise ValueError(f"on_limit must be ask or finish, not {value['on_limit']!r:.60}")


def options_to_json(budget: Budget) -> dict[str, Any]:
    """Returns what somebody set of a budget, as in the options of a run."""
    limits = {kind: limit_to_json(kind, limit) for kind, limit in budget.limits.items()}
    return limits | ({"on_limit": budget.on_limit} if budget.on_limit != "ask" else {})


def _claim_to_json(name: Name, claim: Claim) -> list[Any]:
    return [*name, claim.tokens, str(claim.money), claim.nodes]


def budget_from_json(encoded: Any) -> Budget:
    """Returns the budget that `Budget.to_json` told.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: it is none.
    """
    tokens, calls, money = encoded.get("lost", (0, 0, "0"))
    waiting = dict(map(_claim_from_json, encoded.get("waiting", ())))
    return Budget(
        {kind: limit_from_json(kind, encoded[kind]) for kind in KINDS if kind in encoded},
        encoded.get("on_limit", "ask"),
        encoded.get("below", False),
        encoded.get("finishing"),
        dict(map(_claim_from_json, encoded.get("held", ()))),
        waiting,
        dict.fromkeys(islice(waiting, encoded.get("asked", 0))),
        {call: usage_from_json(usage) for call, usage in encoded.get("told", {}).items()},
        dict(encoded.get("grown_below", {})),
        Lost(tokens, calls, Decimal(money)),
        Decimal(encoded["rate"]) if "rate" in encoded else None,
        busy_time_from_json(encoded["busy"]) if "busy" in encoded else BusyTime(),
        encoded.get("timed", False),
        withdrawn={(owner, key): count for owner, key, count in encoded.get("withdrawn", ())},
    )


def _claim_from_json(encoded: Sequence[Any]) -> tuple[Name, Claim]:
    owner, key, tokens, money, nodes = encoded
    return (owner, key), Claim(tokens, Decimal(money), nodes)


def _path(name: Name) -> str:
    """Return the name of a call in one text: a sub-plan's call names its sub-plan first."""
    # Ids hold any text: two names must not make one.
    return f"{len(name[0])}:{name[0]}/{name[1]}" if name[0] else name[1]
