"""The next call that a run can send: a task with its encoded arguments."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pydantic_core

from dagwright.core.boundary.limits import (
    ARGUMENTS_LIMIT_BYTES,
    RUN_INPUT_LIMIT_BYTES,
)
from dagwright.core.expressions.hydration import secret_names, stored_refs
from dagwright.core.expressions.value_refs import WorkerBinding, bindings_of, encode, ref_for_display
from dagwright.core.model.compiled import CompiledNode
from dagwright.core.model.states import NO_ATTEMPT, NodeError, Task
from dagwright.core.model.tools import ToolDeclaration
from dagwright.features.regions.batches import BatchTooLarge, encode_batch
from dagwright.features.regions.offloaded_batches import encode_offloaded_batch
from dagwright.protocol.map_batch_runs import map_batch_run_input
from dagwright.protocol.plan_limits import options_problem
from dagwright.protocol.run_input import run_input_to_json

if TYPE_CHECKING:
    from dagwright.features.run_scheduler import RunScheduler
    from dagwright.protocol.outcomes import StoreWait

_UNDECLARED_TOOL = ToolDeclaration(name="")


class CallTooLarge(Exception):
    """The arguments of a call exceed the payload limit."""


def encode_arguments(arguments: Mapping[str, Any]) -> tuple[bytes, bool]:
    """Return the arguments of a call as JSON, and whether they contain references that a worker replaces with values.

    In the JSON, a readable text replaces each reference.

    Raises:
        CallTooLarge: the arguments exceed 256 KiB.
        ValueError: the arguments are not JSON.
    """
    try:
        encoded, has_refs = encode(arguments, ref_for_display)
    except pydantic_core.PydanticSerializationError as error:
        raise ValueError(str(error)) from None
    if len(encoded) > ARGUMENTS_LIMIT_BYTES:
        message = f"the arguments have {len(encoded):,} bytes; at most {ARGUMENTS_LIMIT_BYTES:,} are allowed"
        raise CallTooLarge(message)
    return encoded, has_refs


@dataclass(frozen=True, slots=True)
class ReadyCall:
    """A task that can be sent.

    Args:
        arguments: arguments of the task as JSON, with a readable text in place of each binding.
        bindings: values that only a worker may fill in.
    """

    task: Task
    arguments: bytes
    bindings: Sequence[WorkerBinding] = ()

    @property
    def size_bytes(self) -> int:
        """Approximate size of the arguments with the bindings and the answers of people."""
        other_parts = [*self.bindings, *self.task.answers]
        return len(self.arguments) + sum(len(pydantic_core.to_json(part)) for part in other_parts)


def next_call(scheduler: "RunScheduler", at: float) -> ReadyCall | None:
    """Return the next task to start with its encoded arguments; tasks that cannot be sent fail."""
    while (task := scheduler.next_task(at)) is not None:
        if task.node.kind == "region":
            try:
                encode_region = encode_batch if task.node.inner is None else encode_offloaded_batch
                return ReadyCall(task, encode_region(scheduler, task))
            except BatchTooLarge as error:
                scheduler.features.regions.handle_batch_end(
                    task.id, at=at, has_progress=False, error=NodeError("too_large", str(error))
                )
                continue
        tool = scheduler.plan.tools.get(task.node.tool, _UNDECLARED_TOOL)
        problem = None if task.node.kind == "plan" else options_problem(task.node, tool)
        if problem is not None:
            _fail_unsent_call(scheduler, task.id, NodeError("invalid_field", problem), at=at)
            continue
        try:
            if task.map_batch is not None:
                _check_map_batch(scheduler, task)
            return _ready_call(task, tool)
        except CallTooLarge as error:
            call_error = NodeError("too_large", str(error))
        except ValueError as error:
            call_error = NodeError("invalid_arguments", str(error))
        _fail_unsent_call(scheduler, task.id, call_error, at=at)
    return None


def _fail_unsent_call(scheduler: "RunScheduler", task_id: str, error: NodeError, *, at: float) -> None:
    scheduler.features.budget.release(task_id)
    scheduler.fail(task_id, error, at=at, attempt=NO_ATTEMPT)


def _check_map_batch(scheduler: "RunScheduler", task: Task) -> None:
    """Check that the child run of a map batch can be started: its input is JSON and not too large.

    Raises:
        CallTooLarge: the input exceeds the payload limit.
        ValueError: a value is not JSON.
    """
    try:
        size = (
            len(pydantic_core.to_json(run_input_to_json(map_batch_run_input(scheduler, task))))
            if task.is_child_run
            else 0
        )
    except pydantic_core.PydanticSerializationError as error:
        raise ValueError(str(error)) from None
    if size > RUN_INPUT_LIMIT_BYTES:
        problem = f"the items {task.id} and the values that they read have {size:,} bytes"
        raise CallTooLarge(f"{problem}; at most {RUN_INPUT_LIMIT_BYTES:,} are allowed")


def _ready_call(task: Task, tool: ToolDeclaration) -> ReadyCall:
    encoded, has_refs = encode_arguments(task.arguments)
    bindings = bindings_of(task.arguments) if has_refs else ()
    if tool.is_foreign and task.node.kind == "tool" and secret_names(bindings):
        # The check of a plan rejects such secrets, but other programs may send compiled plans that were never checked.
        raise ValueError(f"{task.node.tool!r} runs in a worker of another program, which cannot be given secrets")
    call = ReadyCall(task, encoded, bindings)
    if bindings and call.size_bytes - len(call.arguments) > ARGUMENTS_LIMIT_BYTES:
        raise CallTooLarge(
            f"the references of {len(bindings):,} stored values in the arguments have more than "
            f"{ARGUMENTS_LIMIT_BYTES:,} bytes, the limit of a call"
        )
    return call


def needs_loading(scheduler: "RunScheduler", ready_call: ReadyCall) -> bool:
    """Return whether stored values have to be loaded before the call, because the activity cannot load them."""
    tool = scheduler.plan.tools.get(ready_call.task.node.tool, _UNDECLARED_TOOL)
    return tool.is_foreign and ready_call.task.node.kind == "tool" and bool(stored_refs(ready_call.bindings))


def is_workflow_call(scheduler: "RunScheduler", node: CompiledNode) -> bool:
    """Return whether each call of a node starts a workflow that is not a run."""
    return node.kind == "tool" and scheduler.plan.tools.get(node.tool, _UNDECLARED_TOOL).workflow is not None


def prepare_loading(ready_call: ReadyCall) -> tuple[bytes, ReadyCall]:
    """Return the input of the activity that loads the arguments of a call, and the call without bindings."""
    message = (
        b'{"arguments":' + ready_call.arguments + b',"bindings":' + pydantic_core.to_json(ready_call.bindings) + b"}"
    )
    return message, replace(ready_call, bindings=())


def repeated_call(scheduler: "RunScheduler", task: Task) -> ReadyCall:
    """Return the call of a task that is sent again."""
    return _ready_call(task, scheduler.plan.tools.get(task.node.tool, _UNDECLARED_TOOL))


def store_wait_message(ready_call: ReadyCall, wait: "StoreWait") -> bytes:
    """Return the input of the activity that waits for the payload store.

    The input has the references of the stored values that the call reads, not the values.
    """
    message = {"refs": stored_refs(ready_call.bindings), "size_bytes": wait.size_bytes, "pause_s": wait.pause_s}
    return pydantic_core.to_json(message)
