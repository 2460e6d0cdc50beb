"""Worker cards: what a worker tool is for, what it needs, and what it puts out.

A worker takes slots that others have put out, and puts out slots of its own. Its card is plain data that never changes,
so it travels with the declaration of the tool: a planner reads all of it, and the run holds to what can be checked.
"""

from collections.abc import Collection, Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

GoalType = Literal["support", "deliverable"]

SUB_GOAL = "sub_goal"
"""Parameter of a worker that is told for which sub-goal it is called; nobody gives it as an argument."""
_MOST_SLOTS = 50
"""A card travels with every plan that names it."""


def _slot(name: str) -> str:
    if not name.isidentifier() or len(name) > 100:
        raise ValueError(f"{name[:50]!r} is no name of a slot: letters, digits and _, no digit first, at most 100")
    if name == SUB_GOAL:
        raise ValueError(f"no slot is called {SUB_GOAL!r}: that parameter is filled by the run")
    return name


def _each_once(names: tuple[str, ...]) -> tuple[str, ...]:
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"{twice[0]!r} is there twice")
    return names


def _said(text: str) -> str:
    if not text.strip():
        raise ValueError("it says nothing")
    return text


_Sentence = Annotated[str, Field(max_length=1_000), AfterValidator(_said)]
_Slots = Annotated[
    tuple[Annotated[str, AfterValidator(_slot)], ...],
    Field(strict=False, max_length=_MOST_SLOTS),
    AfterValidator(_each_once),
]


class WorkerCard(BaseModel):
    """What a planner is told of a worker, and what the run holds it to."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    description: Annotated[str, Field(max_length=4_000), AfterValidator(_said)]
    """What it does, so that a planner can tell it from all other workers."""
    preconditions: Annotated[tuple[_Sentence, ...], Field(strict=False, max_length=_MOST_SLOTS)] = ()
    """When it may be chosen, a sentence each; only a planner can judge them."""
    requires: _Slots = ()
    """Slots that have to be there before it is called; the run checks it, whatever a planner says."""
    outputs: _Slots
    """Slots that it puts out, exactly these; one of them may be null."""
    same_as: dict[str, Annotated[str, AfterValidator(_slot)]] = {}
    """Slot of its own -> the slot of another worker that it may stand for, where that is required."""
    goal_type: GoalType
    """`deliverable` if what it puts out is for the answer, `support` if it is for other workers only."""
    takes_sub_goal: bool = False
    """Whether it is told for which sub-goal it is called."""

    @model_validator(mode="after")
    def _puts_something_out(self) -> Self:
        if not self.outputs:
            raise ValueError("outputs: a worker puts out at least one slot")
        for slot, other in self.same_as.items():
            if slot not in self.outputs or other in self.outputs:
                raise ValueError(f"same_as: {slot!r} must be one of its slots, and {other!r} one of another worker")
        return self

    def to_json(self) -> dict[str, Any]:
        """Returns the card as JSON, without what it does not say."""
        return self.model_dump(mode="json", exclude_defaults=True)

    def fills(self, slot: str, required: str) -> bool:
        """Tells whether one of its slots may be wired where a slot is required."""
        return required in (slot, self.same_as.get(slot))

    def slots_problem(self, names: Collection[str], *, is_partial: bool) -> str | None:
        """Returns which slots are missing among those that a call put out, and which are none of its own.

        Args:
            names: of the slots that are there; of a partial result some may be left out.
        """
        missing = [] if is_partial else [slot for slot in self.outputs if slot not in names]
        unknown = sorted(name for name in names if name not in self.outputs)
        return "; ".join(_slots_told(missing, unknown)) or None


def _slots_told(missing: list[str], unknown: list[str]) -> Iterator[str]:
    if missing:
        yield f"missing: {', '.join(map(repr, missing))}"
    if unknown:
        yield f"not declared: {', '.join(map(repr, unknown))}"


def worker_card_from_json(encoded: Any) -> WorkerCard:
    """Returns the card that `WorkerCard.to_json` told.

    Raises:
        ValueError: it is none.
    """
    return WorkerCard.model_validate(encoded)
