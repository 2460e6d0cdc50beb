"""Fairness of runs: the server gives the tasks of each key a share of the worker slots, in proportion to the weight.

Activities and child runs inherit key and weight of their run: the server adds both if a workflow command omits them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dagwright.core.errors import DagwrightError
from dagwright.protocol.run_labels import ALL_OWNERS, is_owner_name

MAX_KEY_BYTES = 64
MIN_WEIGHT, MAX_WEIGHT = 0.001, 1000.0
"""Limits of the server (temporal.api.common.v1.Priority): it fails tasks with longer keys, and clamps weights."""


class FairnessInvalid(DagwrightError, ValueError):
    """The fairness key or weight of a run is invalid; the message has the limits."""


@dataclass(frozen=True, slots=True)
class Fairness:
    """Group of runs that share worker slots.

    Args:
        key: name of the group, 1 to `MAX_KEY_BYTES` bytes of UTF-8.
        weight: share of the worker slots relative to other keys, `MIN_WEIGHT` to `MAX_WEIGHT`.
    """

    key: str
    weight: float = 1.0

    def to_json(self) -> dict[str, Any]:
        return {"key": self.key, "weight": self.weight}


def fairness_of(key: object, weight: object) -> Fairness | None:
    """Return the fairness of a run; `None` if there is no key.

    Raises:
        FairnessInvalid: the key or weight is invalid, or there is only a weight.
    """
    if key is None:
        if weight is not None:
            raise FairnessInvalid("a fairness weight needs a fairness key")
        return None
    is_text = isinstance(key, str) and key.isprintable() and bool(key.strip())
    if not isinstance(key, str) or not is_text or len(key.encode()) > MAX_KEY_BYTES:
        raise FairnessInvalid(f"a fairness key must be 1 to {MAX_KEY_BYTES} bytes of printable UTF-8, not {key!r:.80}")
    if weight is None:
        return Fairness(key)
    # `bool` is an `int`; NaN compares as false.
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not MIN_WEIGHT <= weight <= MAX_WEIGHT:
        raise FairnessInvalid(f"a fairness weight is a number from {MIN_WEIGHT} to {MAX_WEIGHT:g}, not {weight!r:.60}")
    return Fairness(key, float(weight))


def fairness_of_owner(owner: str | None, weight: float = 1.0) -> Fairness | None:
    """Return the fairness of the runs of an owner; `None` without a valid owner."""
    if owner is None or not (owner == ALL_OWNERS or is_owner_name(owner)):
        return None
    return Fairness(owner, weight)


def fairness_from_json(encoded: Any) -> Fairness | None:
    """Decode `Fairness.to_json`.

    Raises:
        FairnessInvalid: the JSON is invalid.
    """
    if encoded is None:
        return None
    if not isinstance(encoded, Mapping):
        raise FairnessInvalid(f"fairness is an object with key and weight, not {encoded!r:.60}")
    return fairness_of(encoded.get("key"), encoded.get("weight"))


def fairness_in(priority: Any) -> Fairness | None:
    """Return the fairness in a protobuf `Priority` of the server; `None` if the priority has no key."""
    if not priority.fairness_key:
        return None
    return Fairness(priority.fairness_key, priority.fairness_weight or 1.0)
