"""Call pure tools of a region directly: the same steps as the wrapper of `call_tool`, without an activity.

Every call catches all exceptions, because a tool may raise anything. This module must not import workflows.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dagwright.activities.call_headers import values_of_secrets
from dagwright.activities.errors import error_text, full_failure_text, retry_decision
from dagwright.activities.values import Load, LoadedValue, hydrate_arguments
from dagwright.core.boundary.decoding import json_from_bytes
from dagwright.core.boundary.limits import MAX_FAILURE_MESSAGE_BYTES, STORED_VALUE_LIMIT_BYTES
from dagwright.core.expressions.hydration import stored_refs
from dagwright.core.expressions.value_refs import WorkerBinding, bindings_of
from dagwright.core.model.compiled import REGION_TIMEOUT_S
from dagwright.core.model.states import NodeError, Task
from dagwright.core.model.tools import Effects
from dagwright.core.text import cut_bytes
from dagwright.planning.model_calls.model_requests import ModelCall, ModelResponse
from dagwright.tools import ToolSpec
from dagwright.tools.context import CallIdentity, Cancellation, ModelAccess, ToolContext, active_context
from dagwright.tools.environment import ToolEnvironment
from dagwright.tools.errors import NotInRegion, ResultTooLarge, ToolError
from dagwright.tools.redaction import Redaction
from dagwright.tools.result_json import encode_plain_json, plain_json

if TYPE_CHECKING:
    from dagwright.activities.batch_cache import BatchCache

NO_REDACTION = Redaction()
_MAX_NUMBER_BYTES = 24
"""Upper bound of the JSON size of a number or a boolean."""
_MAX_SHORT_TEXT_CHARACTERS = 1_000
_INT64_LIMIT = 2**63


@dataclass(slots=True)
class PureOutcome:
    """Outcome of a call: a value and its JSON size, or an error, with its full text if the text is long."""

    value: Any = None
    size_bytes: int = 0
    error: NodeError | None = None
    attempts: int = 1
    full_text: Mapping[str, str] | None = None
    cache_provenance: Mapping[str, Any] | None = None
    """Provenance of a cached value."""
    needs_activity: bool = False
    """Whether the node has no outcome because its tool needs an activity."""


class _CallContext(ToolContext):
    """The `context()` of tools in a region. All calls of a batch use one object, one after the other."""

    task_id = ""
    attempt_number = 1

    @property
    def node_id(self) -> str:
        return self.task_id

    @property
    def attempt(self) -> int:
        return self.attempt_number


class PureCalls:
    """Call pure tools one after the other, in the current thread.

    Args:
        run_id: ID of the run, for `context()`.
        environment: environment of the process.
        load: loads values of the payload store in this thread.
        cancellation: the stop request for the tools.
        cache: cached results of earlier calls; without a cache, every call is made.
    """

    def __init__(
        self,
        run_id: str,
        environment: ToolEnvironment,
        *,
        load: Load,
        cancellation: Cancellation,
        cache: "BatchCache | None" = None,
    ) -> None:
        identity = CallIdentity(idempotency_key="", node_id="", run_id=run_id)
        self._context = _CallContext(
            identity,
            cancellation,
            send_heartbeat=_ignore_heartbeat,
            environment=environment,
            models=ModelAccess(_refuse_model_call),
        )
        self._environment = environment
        self._load = load
        self._cache = cache
        self._has_queried_cache = False
        self._bindings: list[WorkerBinding] = []
        self._loaded_values: Mapping[str, LoadedValue] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_async_by_tool: dict[str, bool] = {}
        """Tool -> whether its function is async."""

    def active_context(self) -> AbstractContextManager[ToolContext]:
        """Return the context manager inside which tools may be called."""
        return active_context(self._context)

    @property
    def has_queried_store(self) -> bool:
        """Return whether the store was queried for the last loaded task."""
        return self._has_queried_cache or bool(self._loaded_values)

    def load(self, task: Task) -> PureOutcome | None:
        """Load the stored values of a task's arguments.

        Returns:
            The outcome if no call is needed: the values are unavailable, or the result is cached.
        """
        self._bindings = bindings_of(task.arguments)
        self._has_queried_cache = self._cache is not None and self._cache.admission.should_look_up(task.node.tool)
        if self._has_queried_cache and (outcome := self._cached_outcome(task)) is not None:
            return outcome
        refs = stored_refs(self._bindings) if self._bindings else []
        try:
            self._loaded_values = self._load(refs) if refs else {}
        except ToolError as error:
            return _failed_outcome(error, NO_REDACTION)
        return None

    def _cached_outcome(self, task: Task) -> PureOutcome | None:
        cached = self._cache.find(task, self._bindings) if self._cache is not None else None
        if cached is None:
            return None
        return PureOutcome(json_from_bytes(cached.content), len(cached.content), cache_provenance=cached.provenance())

    def put(self, task: Task, outcome: PureOutcome, *, took_s: float) -> None:
        """Cache the result of the last loaded task if its call was slow."""
        if self._cache is not None and outcome.cache_provenance is None:
            self._cache.put(task, self._bindings, outcome.value, took_s=took_s)

    async def flush(self) -> None:
        """Wait a moment for the cached results to reach the store; await this method on the event loop."""
        if self._cache is not None:
            await self._cache.flush()

    def call(self, spec: ToolSpec, task: Task) -> PureOutcome:
        """Call the tool for the loaded task and return the outcome.

        A transient failure is retried at once, up to the node's number of attempts.
        """
        self._context.task_id = task.id
        attempt = 1
        while True:
            self._context.attempt_number = attempt
            outcome = self._attempt(spec, task)
            outcome.attempts = attempt
            if outcome.error is None or not outcome.error.retryable or attempt >= task.node.retry.max_attempts:
                return outcome
            attempt += 1

    def close(self) -> None:
        """Close the event loop of async tools."""
        if self._loop is not None:
            self._loop.close()

    def _attempt(self, spec: ToolSpec, task: Task) -> PureOutcome:
        redaction = NO_REDACTION
        try:
            arguments = {name: copy_json(value) for name, value in task.arguments.items()}
            if self._bindings:
                secrets = values_of_secrets(self._bindings, spec.declaration, self._environment)
                redaction = Redaction(secrets.values())
                hydrate_arguments(arguments, self._bindings, secrets=secrets, loaded_values=self._loaded_values)
            keywords = spec.bind(arguments)
            assert spec.function is not None
            is_async = self._is_async_by_tool.get(spec.name)
            if is_async is None:
                is_async = self._is_async_by_tool[spec.name] = spec.is_async
            return_value = self._run_async(spec.function, keywords) if is_async else spec.function(**keywords)
            return encode_result(return_value, spec, redaction)
        except NotInRegion:
            return PureOutcome(needs_activity=True)
        except BaseException as error:
            return _failed_outcome(error, redaction)

    def _run_async(self, function: Callable[..., Any], keywords: Mapping[str, Any]) -> Any:
        """Run an async tool on an event loop of this thread."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        return_value, error = self._loop.run_until_complete(_call_catching_all(function, keywords))
        if error is not None:
            raise error
        return return_value


def _failed_outcome(error: BaseException, redaction: Redaction) -> PureOutcome:
    decision = retry_decision(error, Effects.PURE)
    text = cut_bytes(redaction.redact_text(error_text(error)), max_bytes=MAX_FAILURE_MESSAGE_BYTES)
    node_error = NodeError(decision.code, text or "no message", not decision.is_final)
    return PureOutcome(error=node_error, full_text=full_failure_text(error, redaction))


async def _call_catching_all(
    function: Callable[..., Any], keywords: Mapping[str, Any]
) -> tuple[Any, BaseException | None]:
    # A SystemExit that leaves a task would stop the loop; a StopIteration would become another error.
    try:
        return await function(**keywords), None
    except BaseException as error:
        return None, error


def timeout_of(task: Task) -> float:
    """Return the timeout of one call of a task in a region, in seconds."""
    return task.node.timeout_s or REGION_TIMEOUT_S


def timeout_error(task: Task) -> NodeError:
    """Return the error of a node whose call exceeds its timeout."""
    return NodeError("timeout", f"{task.node.tool} took over {timeout_of(task):g} s", retryable=True)


def copy_json(value: Any) -> Any:
    """Copy a JSON value, so that a tool can change the copy without changing the value for other nodes."""
    kind = type(value)
    if kind is dict:
        return {name: copy_json(part) for name, part in value.items()}
    return [copy_json(part) for part in value] if kind is list else value


def encode_result(return_value: Any, spec: ToolSpec, redaction: Redaction) -> PureOutcome:
    """Encode a tool's return value as the plain JSON value that other nodes read.

    Raises:
        InvalidResult: the value is not JSON.
        ResultTooLarge: the value is over the size limit.
    """
    kind = type(return_value)
    if return_value is None or kind is bool or (kind is int and -_INT64_LIMIT < return_value < _INT64_LIMIT):
        return PureOutcome(return_value, _MAX_NUMBER_BYTES)
    if kind is str and len(return_value) <= _MAX_SHORT_TEXT_CHARACTERS and return_value.isascii():
        return PureOutcome(redaction.redact_value(return_value), len(return_value) + 2)
    content = encode_plain_json(redaction.redact_value(plain_json(return_value)))
    if len(content) > STORED_VALUE_LIMIT_BYTES:
        raise ResultTooLarge(
            f"The result of {spec.name!r} has {len(content):,} bytes as JSON, over the limit of "
            f"{STORED_VALUE_LIMIT_BYTES:,}; write it to a file and return its name"
        )
    return PureOutcome(json_from_bytes(content), len(content))


async def _refuse_model_call(call: ModelCall) -> ModelResponse:  # noqa: ARG001 - the signature of a model call
    raise NotInRegion("a model call needs an activity of its own")


def _ignore_heartbeat(details: Any, progress: Any) -> None:
    """Ignore the tool's progress: the batch sends the heartbeats of a region."""
