"""Lets tools be tested without a worker process: those that ask for `context()`, and worker tools.

with tool_context(idempotency_key="k1") as call:
    publish(report="Q1")
assert call.heartbeats == ["half"]
assert (await call_worker(count_words, {"text": "three small words"})).outputs == {"word_count": 3}
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dagwright.core.model.compiled import CompiledNode
from dagwright.core.model.tasks import Task, TaskRef
from dagwright.core.model.worker_results import WorkerResult
from dagwright.core.validation.workers import PreconditionMissing, prepared_call
from dagwright.tools.context import CallIdentity, Cancellation, Progress, ToolContext, entered
from dagwright.tools.environment import ToolEnvironment
from dagwright.tools.questions import Ask, Models, no_models, running_loop
from dagwright.tools.results import plain_json
from dagwright.tools.spec import spec_of

__all__ = ["PreconditionMissing", "RecordedCall", "call_worker", "tool_context"]


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
    environment: ToolEnvironment | None = None,
    owner: str | None = None,
    effects: str = "write",
    secret_hosts: tuple[tuple[str, ...], ...] | None = None,
) -> Iterator[RecordedCall]:
    """Makes `context()` work inside the block and records what the tool reports.

    Args:
        ask: who answers what the tool asks models, such as `complete` of a `ModelClient`.
        environment: what it has of the process; by default one without any settings.
        owner: of the API key that the run was started with.
        effects: of the call.
        secret_hosts: of each secret in its arguments.
    """
    recorded = RecordedCall()

    def beat(details: Any, progress: Progress | None) -> None:
        recorded.heartbeats.append(details)
        if progress is not None:
            recorded.progress.append(progress)

    identity = CallIdentity(
        idempotency_key,
        node,
        workflow_id,
        attempt,
        last_heartbeat,
        tuple(answers),
        checkpoint,
        owner=owner,
        effects=effects,
        secret_hosts=secret_hosts,
    )
    models, given = Models(ask, running_loop()), environment or ToolEnvironment(Path())
    call = ToolContext(identity, recorded.cancellation, beat=beat, environment=given, models=models)
    recorded.places = call.places
    with entered(call):
        yield recorded


async def call_worker(
    worker: Callable[..., Any],
    arguments: Mapping[str, Any] | None = None,
    *,
    description: str = "",
    ask: Ask = no_models,
    environment: ToolEnvironment | None = None,
) -> WorkerResult:
    """Calls a worker for the sub-goal 1 as a run would, and returns what it answers, as it is after its way as JSON.

    Args:
        arguments: its slots and parameters, as JSON.
        description: of the sub-goal.
        ask: who answers what the worker asks models.
        environment: what it has of the process; by default one without any settings.

    Raises:
        TypeError: it is no worker.
        PreconditionMissing: a slot that it requires is not among the arguments.
        InvalidArguments, InvalidResult: the arguments, or the slots that it answered, are not as declared.
    """
    spec = spec_of(worker)
    if spec is None or spec.function is None or spec.declaration.worker is None:
        raise TypeError(f"{worker!r} is no worker; decorate it with @worker_tool")
    node = CompiledNode("sg1", title=description, tool=spec.name)
    task = prepared_call(Task(node.id, node, TaskRef(0), dict(arguments or {}), []), {spec.name: spec.declaration})
    keywords = spec.bind(task.arguments)
    with tool_context(node=node.id, ask=ask, environment=environment):
        if spec.is_async:
            answered = await spec.function(**keywords)
        else:
            answered = await asyncio.to_thread(spec.function, **keywords)
    return WorkerResult(**plain_json(answered))
