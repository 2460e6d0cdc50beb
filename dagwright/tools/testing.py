"""Test tools without a worker process: tools that call `context()`, and worker tools.

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
from dagwright.core.model.states import Task, TaskRef
from dagwright.core.model.worker_results import WorkerResult
from dagwright.core.validation.worker_tools import PreconditionMissing, prepare_call
from dagwright.tools.context import (
    CallIdentity,
    CallModel,
    Cancellation,
    ModelAccess,
    Progress,
    ToolContext,
    active_context,
    no_model,
    running_loop,
)
from dagwright.tools.environment import ToolEnvironment
from dagwright.tools.result_json import plain_json
from dagwright.tools.spec import spec_of

__all__ = ["PreconditionMissing", "RecordedCall", "call_worker", "tool_context"]


@dataclass(slots=True)
class RecordedCall:
    """The reports of a tool to its context.

    Args:
        heartbeats: details of each heartbeat, in order.
        progress: each report of progress, in order.
        read_locations: the locations that the call has read, in order.
        cancellation: `cancellation.request()` cancels the call.
    """

    heartbeats: list[Any] = field(default_factory=list)
    progress: list[Progress] = field(default_factory=list)
    read_locations: list[str] = field(default_factory=list)
    cancellation: Cancellation = field(default_factory=Cancellation)


@contextmanager
def tool_context(  # noqa: PLR0913 - each is one value that a tool may read, by keyword
    idempotency_key: str = "test-key",
    node_id: str = "node",
    *,
    run_id: str = "test-run",
    attempt: int = 1,
    last_heartbeat: Any = None,
    answers: Sequence[Any] = (),
    checkpoint: Any = None,
    ask: CallModel = no_model,
    environment: ToolEnvironment | None = None,
    owner: str | None = None,
    effects: str = "write",
    secret_hosts: tuple[tuple[str, ...], ...] | None = None,
) -> Iterator[RecordedCall]:
    """Make `context()` work inside the block, and record the reports of the tool.

    Args:
        ask: makes the model calls of the tool, such as `complete` of a `ModelClient`.
        environment: settings of the process; by default, an environment without settings.
        owner: owner of the API key that the run was started with.
        effects: effects of the call.
        secret_hosts: permitted hosts of each secret in the arguments.
    """
    recorded_call = RecordedCall()

    def send_heartbeat(details: Any, progress: Progress | None) -> None:
        recorded_call.heartbeats.append(details)
        if progress is not None:
            recorded_call.progress.append(progress)

    identity = CallIdentity(
        idempotency_key,
        node_id,
        run_id,
        attempt,
        last_heartbeat,
        tuple(answers),
        checkpoint,
        owner=owner,
        effects=effects,
        secret_hosts=secret_hosts,
    )
    models, tool_environment = ModelAccess(ask, running_loop()), environment or ToolEnvironment(Path())
    running_context = ToolContext(
        identity, recorded_call.cancellation, send_heartbeat=send_heartbeat, environment=tool_environment, models=models
    )
    recorded_call.read_locations = running_context.read_locations
    with active_context(running_context):
        yield recorded_call


async def call_worker(
    worker_tool: Callable[..., Any],
    arguments: Mapping[str, Any] | None = None,
    *,
    description: str = "",
    ask: CallModel = no_model,
    environment: ToolEnvironment | None = None,
) -> WorkerResult:
    """Call a worker tool for sub-goal 1 as a run would, and return its result after a JSON round trip.

    Args:
        arguments: slots and parameters of the worker tool, as JSON.
        description: description of the sub-goal.
        ask: makes the model calls of the tool.
        environment: settings of the process; by default, an environment without settings.

    Raises:
        TypeError: `worker_tool` is not a worker tool.
        PreconditionMissing: a required slot is not among the arguments.
        InvalidArguments, InvalidResult: the arguments or the returned slots do not match the declaration.
    """
    spec = spec_of(worker_tool)
    if spec is None or spec.function is None or spec.declaration.worker is None:
        raise TypeError(f"{worker_tool!r} is not a worker tool; decorate it with @worker_tool")
    node = CompiledNode("sg1", title=description, tool=spec.name)
    task = prepare_call(Task(node.id, node, TaskRef(0), dict(arguments or {}), []), {spec.name: spec.declaration})
    keywords = spec.bind(task.arguments)
    with tool_context(node_id=node.id, ask=ask, environment=environment):
        if spec.is_async:
            returned_value = await spec.function(**keywords)
        else:
            returned_value = await asyncio.to_thread(spec.function, **keywords)
    return WorkerResult(**plain_json(returned_value))
