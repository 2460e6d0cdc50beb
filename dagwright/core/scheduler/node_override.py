"""Manual overrides of nodes and items. It must not import the scheduler."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any


@dataclass(slots=True)
class NodeOverride:
    """Decisions of people about one node or item that take precedence over the plan.

    Args:
        approved: whether a person approved the call.
        arguments: arguments that replace those of the plan, or `None`.
        retries: number of retries.
        attempts: attempts of all tries before the last.
        answers: answers to requests that the call opened while it ran, in order: `{"request_id", "answer"}`, with
            `checkpoint` if the call passed one.
        steps: commands for the lineage, with actor and time: `{"command", "by", "at", …}`.
    """

    approved: bool = False
    arguments: Mapping[str, Any] | None = None
    retries: int = 0
    attempts: int = 0
    answers: list[dict[str, Any]] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)

    @property
    def has_given_result(self) -> bool:
        """Whether a person set the result."""
        return any(step["command"] == "set_result" for step in self.steps)

    def to_json(self) -> dict[str, Any]:
        """Return the override as JSON, without fields at their default."""
        return {name: value for name, value in self._parts() if value not in (False, None, 0, [])}

    def _parts(self) -> Iterator[tuple[str, Any]]:
        return ((part.name, getattr(self, part.name)) for part in fields(self))


def override_from_json(encoded: Mapping[str, Any]) -> NodeOverride:
    """Return the override that `NodeOverride.to_json` encoded."""
    known = {part.name for part in fields(NodeOverride)}
    return NodeOverride(**{name: value for name, value in encoded.items() if name in known})
