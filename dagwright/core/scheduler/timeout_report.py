"""What a run that took too long was held up by, in words."""

from collections.abc import Iterator, Sequence

from dagwright.core.model.compiled import CompiledPlan
from dagwright.core.model.states import NodeStatus, Record

_NAMED = 3
"""Nodes of each kind that are named; the others are counted."""
_REASON_CHARACTERS = 100


def held_up_words(plan: CompiledPlan, records: Sequence[Record], *, is_paused: bool) -> str:
    """Returns what runs and what waits, such as `still running: a, b; waiting: c (waits for ann: Go on?)`.

    Empty if nothing does.
    """
    running: list[str] = []
    waiting: list[str] = []
    for name, record in _tasks(plan, records):
        if record.status is NodeStatus.RUNNING:
            running.append(name)
        elif record.status is NodeStatus.WAITING:
            reason = " ".join((record.reason or "").split())[:_REASON_CHARACTERS]
            waiting.append(f"{name} ({reason})" if reason else name)
    parts = ["it was paused"] if is_paused else []
    parts += [
        f"{what}: {_listed(names)}" for what, names in (("still running", running), ("waiting", waiting)) if names
    ]
    return "; ".join(parts)


def _tasks(plan: CompiledPlan, records: Sequence[Record]) -> Iterator[tuple[str, Record]]:
    """Yields nodes and items as they are shown; a map does not run itself, but its items."""
    for node, record in zip(plan.nodes[: plan.written_count], records, strict=False):
        if node.for_each is None:
            yield node.id, record
        for item in record.items:
            yield f"{node.id}[{item.key}]", item.record


def _listed(names: Sequence[str]) -> str:
    left = len(names) - _NAMED
    return ", ".join([*names[:_NAMED], *([f"{left:,} more"] if left > 0 else [])])
