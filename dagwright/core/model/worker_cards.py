"""Worker cards: the purpose of a worker tool, the slots that it requires, and the slots that it fills.

A worker tool reads slots that other worker tools have filled, and fills slots of its own. Its card is immutable plain
data, so it travels with the declaration of the tool. Planners read all of it; the run enforces the slots.
"""

from collections.abc import Collection, Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

GoalType = Literal["support", "deliverable"]

SUB_GOAL = "sub_goal"
"""Parameter of a worker tool that receives the id of its sub-goal; the run sets it, and callers cannot."""
_MOST_SLOTS = 50
"""Most slots of a card; the card travels with every plan that names it."""


def _slot(name: str) -> str:
    if not name.isidentifier() or len(name) > 100:
        raise ValueError(f"{name[:50]!r} is not a slot name: letters, digits and _, no digit first, at most 100")
    if name == SUB_GOAL:
        raise ValueError(f"a slot cannot be called {SUB_GOAL!r}: the run sets this parameter")
    return name


def _distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    if duplicates := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"duplicate name {duplicates[0]!r}")
    return names


def _not_empty(text: str) -> str:
    if not text.strip():
        raise ValueError("the text is empty")
    return text


_Sentence = Annotated[str, Field(max_length=1_000), AfterValidator(_not_empty)]
_Slots = Annotated[
    tuple[Annotated[str, AfterValidator(_slot)], ...],
    Field(strict=False, max_length=_MOST_SLOTS),
    AfterValidator(_distinct),
]


class WorkerCard(BaseModel):
    """Description of a worker tool for planners, and the slots that the run enforces."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    description: Annotated[str, Field(max_length=4_000), AfterValidator(_not_empty)]
    """Purpose of the worker tool; it must distinguish the tool from all other worker tools."""
    preconditions: Annotated[tuple[_Sentence, ...], Field(strict=False, max_length=_MOST_SLOTS)] = ()
    """Conditions for choosing it, one sentence each; only a planner can evaluate them."""
    requires: _Slots = ()
    """Slots that must be filled before it is called; the run checks it, whatever a planner writes."""
    outputs: _Slots
    """Slots that it fills, exactly these; each of them may be null."""
    same_as: dict[str, Annotated[str, AfterValidator(_slot)]] = {}
    """Slot of its own -> slot of another worker tool that it can replace where that slot is required."""
    goal_type: GoalType
    """`deliverable` if its outputs are part of the answer, `support` if only other worker tools need them."""
    takes_sub_goal: bool = False
    """Whether the tool receives the id of its sub-goal."""

    @model_validator(mode="after")
    def _check_slots(self) -> Self:
        if not self.outputs:
            raise ValueError("outputs: a worker tool fills at least one slot")
        for slot, other in self.same_as.items():
            if slot not in self.outputs or other in self.outputs:
                raise ValueError(f"same_as: {slot!r} must be one of its slots, and {other!r} a slot of another worker")
        return self

    def to_json(self) -> dict[str, Any]:
        """Return the card as JSON, without default values."""
        return self.model_dump(mode="json", exclude_defaults=True)

    def fills(self, slot: str, required: str) -> bool:
        """Return whether one of its slots can be used where a slot is required."""
        return required in (slot, self.same_as.get(slot))

    def slots_problem(self, names: Collection[str], *, is_partial: bool) -> str | None:
        """Return the missing and the undeclared slots of a result; `None` if it has exactly the declared slots.

        Args:
            names: slots of the result; a partial result may leave some out.
        """
        missing = [] if is_partial else [slot for slot in self.outputs if slot not in names]
        unknown = sorted(name for name in names if name not in self.outputs)
        return "; ".join(_slot_messages(missing, unknown)) or None


def _slot_messages(missing: list[str], unknown: list[str]) -> Iterator[str]:
    if missing:
        yield f"missing: {', '.join(map(repr, missing))}"
    if unknown:
        yield f"not declared: {', '.join(map(repr, unknown))}"


def worker_card_from_json(encoded: Any) -> WorkerCard:
    """Parse the result of `WorkerCard.to_json`.

    Raises:
        ValueError: the card is invalid.
    """
    return WorkerCard.model_validate(encoded)
