"""Lets a tool that asks for `context()` be tested without a worker.

with tool_context(idempotency_key="k1") as call:
    publish(report="Q1")
assert call.heartbeats == ["half"]
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from dagwright.tools.context import CallIdentity, Cancellation, Progress, ToolContext, entered
from dagwright.tools.questions import Ask, Models, no_models, running_loop


@dataclass(slots=True)
class RecordedCall:
    """What a tool did to its context.

    Args:
        heartbeats: details of each heartbeat, in order.
        progress: each report of progress, in order.
        places: what the call has told that it has read, in order.
        cancellation: `cancellation.request()` cancels the call.
    """

    heartbeats: list[Any] = field(default_factory=list)
    progress: list[Progress] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    cancellation: Cancellation = field(default_factory=Cancellation)


@contextmanager
def tool_context(  # noqa: PLR0913 - each is one thing that a tool may see, by keyword
    idempotency_key: str = "test-key",
    node: str = "node",
    *,
    workflow_id: str = "test-run",
    attempt: int = 1,
    last_heartbeat: Any = None,
    answers: Sequence[Any] = (),
    checkpoint: Any = None,
    ask: Ask = no_models,
) -> Iterator[RecordedCall]:
    """Makes `context()` work inside the block and records what the tool reports.

    Args:
        ask: who answers what the tool asks models, such as `complete` of a `ModelClient`.
    """
    recorded = RecordedCall()

    def beat(details: Any, progress: Progress | None) -> None:
        recorded.heartbeats.append(details)
        if progress is not None:
            recorded.progress.append(progress)

    identity = CallIdentity(idempotency_key, node, workflow_id, attempt, last_heartbeat, tuple(answers), checkpoint)
    call = ToolContext(identity, recorded.cancellation, beat=beat, models=Models(ask, running_loop()))
    recorded.places = call.places
    with entered(call):
        yield recorded
