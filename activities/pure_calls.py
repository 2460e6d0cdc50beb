"""Calls one pure tool inside of a region: what the wrapper does for an activity, without an activity.

The innermost frame lets nothing escape: a tool may raise whatever it likes. This module must not import workflows.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from dagwright.activities.call_headers import known_secrets
from dagwright.activities.errors import posture_of, text_of, whole_of
from dagwright.activities.pure_results import PureResults
from dagwright.activities.values import Load, Loaded, put_in
from dagwright.core.boundary.decoding import json_from_bytes
from dagwright.core.boundary.limits import MESSAGE_LIMIT_BYTES, STORED_VALUE_LIMIT_BYTES
from dagwright.core.boundary.text import cut_bytes
from dagwright.core.expressions.hydration import stored_refs
from dagwright.core.expressions.value_refs import WorkerBinding, bindings_of
from dagwright.core.model.compiled import PURE_TIMEOUT_S
from dagwright.core.model.errors import NodeError
from dagwright.core.model.tasks import Task
from dagwright.core.model.tools import Effects
from dagwright.planning.model_calls.calls import ModelAnswer, ModelCall
from dagwright.tools import ToolSpec
from dagwright.tools.context import CallIdentity, Cancellation, ToolContext, entered
from dagwright.tools.environment import ToolEnvironment
from dagwright.tools.errors import NotInRegion, ResultTooLarge, ToolError
from dagwright.tools.questions import Models
from dagwright.tools.redaction import Redaction
from dagwright.tools.results import encoded_json, plain_json

NOTHING_HIDDEN = Redaction()
_SMALL_BYTES = 24
"""More than a number or a truth value has as JSON."""
_SHORT_TEXT = 1_000
_SAFE_INTEGER = 2**63


@dataclass(slots=True)
class PureEnd:
    """How a call ended: with a value of so many bytes as JSON, or with an error, and its whole text if that is long."""

    value: Any = None
    size_bytes: int = 0
    error: NodeError | None = None
    attempts: int = 1
    whole: Mapping[str, str] | None = None
    cached: Mapping[str, Any] | None = None
    """Of a value that an earlier call made: which one."""
    is_left: bool = False
    """Whether there is no end: the tool has to be called by itself."""


class _CallContext(ToolContext):
    """What `context()` returns in a region: one object for all calls of a slice, one after the other."""

    task_id = ""
    attempt_number = 1

    @property
    def node(self) -> str:
        return self.task_id

    @property
    def attempt(self) -> int:
        return self.attempt_number


class PureCalls:
    """Calls pure tools, one after the other, in the thread that uses it.

    Args:
        workflow_id: of the run, for `context()`.
        environment: of the process.
        load: brings values of the payload store into this thread.
        cancellation: tells the tools that they shall stop.
        results: of earlier calls; without them every call is made.
    """

    def __init__(
        self,
        workflow_id: str,
        environment: ToolEnvironment,
        *,
        load: Load,
        cancellation: Cancellation,
        results: PureResults | None = None,
    ) -> None:
        identity = CallIdentity(idempotency_key="", node="", workflow_id=workflow_id)
        self._context = _CallContext(
            identity, cancellation, beat=_no_beat, environment=environment, models=Models(_not_here)
        )
        self._environment = environment
        self._load = load
        self._results = results
        self._has_looked = False
        self._bindings: list[WorkerBinding] = []
        self._loaded: Mapping[str, Loaded] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._async_tools: dict[str, bool] = {}

    def entered(self) -> AbstractContextManager[ToolContext]:
        """Returns the block inside of which tools may be called."""
        return entered(self._context)

    @property
    def has_loaded(self) -> bool:
        """Tells whether the store was asked for the task that was loaded."""
        return self._has_looked or bool(self._loaded)

    def load(self, task: Task) -> PureEnd | None:
        """Brings the stored values of the arguments of a task.

        Returns:
            How the task ends without a call: they cannot be had, or an equal call was made before.
        """
        self._bindings = bindings_of(task.arguments)
        self._has_looked = self._results is not None and self._results.worth.of(task.node.tool)
        if self._has_looked and (end := self._found(task)) is not None:
            return end
        refs = stored_refs(self._bindings) if self._bindings else []
        try:
            self._loaded = self._load(refs) if refs else {}
        except ToolError as error:
            return _failed(error, NOTHING_HIDDEN)
        return None

    def _found(self, task: Task) -> PureEnd | None:
        found = self._results.find(task, self._bindings) if self._results is not None else None
        if found is None:
            return None
        return PureEnd(json_from_bytes(found.content), len(found.content), cached=found.told())

    def keep(self, task: Task, end: PureEnd, *, took_s: float) -> None:
        """Keeps the value that the task loaded last came to for equal calls, if to call took long."""
        if self._results is not None and end.cached is None:
            self._results.keep(task, self._bindings, end.value, took_s=took_s)

    async def written(self) -> None:
        """Waits a moment until what was kept is in the store; to be awaited by the event loop."""
        if self._results is not None:
            await self._results.written()

    def call(self, spec: ToolSpec, task: Task) -> PureEnd:
        """Returns how the tool answers the task that was loaded.

        What may pass is tried again at once, as often as the node says.
        """
        self._context.task_id = task.id
        attempt = 1
        while True:
            self._context.attempt_number = attempt
            end = self._attempt(spec, task)
            end.attempts = attempt
            if end.error is None or not end.error.retryable or attempt >= task.node.retry.max_attempts:
                return end
            attempt += 1

    def close(self) -> None:
        """Gives back what async tools needed."""
        if self._loop is not None:
            self._loop.close()

    def _attempt(self, spec: ToolSpec, task: Task) -> PureEnd:
        redaction = NOTHING_HIDDEN
        try:
            arguments = {name: copied(value) for name, value in task.arguments.items()}
            if self._bindings:
                secrets = known_secrets(self._bindings, spec.declaration, self._environment)
                redaction = Redaction(secrets.values())
                put_in(arguments, self._bindings, secrets=secrets, loaded=self._loaded)
            keywords = spec.bind(arguments)
            assert spec.function is not None
            is_async = self._async_tools.get(spec.name)
            if is_async is None:
                is_async = self._async_tools[spec.name] = spec.is_async
            answer = self._driven(spec.function, keywords) if is_async else spec.function(**keywords)
            return encoded(answer, spec, redaction)
        except NotInRegion:
            return PureEnd(is_left=True)
        except BaseException as error:
            return _failed(error, redaction)

    def _driven(self, function: Callable[..., Any], keywords: Mapping[str, Any]) -> Any:
        """Runs an async tool on a loop of this thread."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        answer, error = self._loop.run_until_complete(_guarded(function, keywords))
        if error is not None:
            raise error
        return answer


def _failed(error: BaseException, redaction: Redaction) -> PureEnd:
    posture = posture_of(error, Effects.PURE)
    text = cut_bytes(redaction.text(text_of(error)), max_bytes=MESSAGE_LIMIT_BYTES)
    told = NodeError(posture.code, text or "no message", not posture.is_final)
    return PureEnd(error=told, whole=whole_of(error, redaction))


async def _guarded(function: Callable[..., Any], keywords: Mapping[str, Any]) -> tuple[Any, BaseException | None]:
    # On its way out of a task a SystemExit would stop the loop, and a StopIteration would become something else.
    try:
        return await function(**keywords), None
    except BaseException as error:
        return None, error


def timeout_of(task: Task) -> float:
    """Returns the seconds that one call of a task may take in a region."""
    return task.node.timeout_s or PURE_TIMEOUT_S


def timeout_error(task: Task) -> NodeError:
    """Returns why a node fails whose call takes too long."""
    return NodeError("timeout", f"{task.node.tool} took over {timeout_of(task):g} s", retryable=True)


def copied(value: Any) -> Any:
    """Returns a JSON value that a tool may change without changing what others read."""
    kind = type(value)
    if kind is dict:
        return {name: copied(part) for name, part in value.items()}
    return [copied(part) for part in value] if kind is list else value


def encoded(answer: Any, spec: ToolSpec, redaction: Redaction) -> PureEnd:
    """Returns what a tool answered as the plain JSON value that everybody else reads.

    Raises:
        InvalidResult: it is no JSON.
        ResultTooLarge: it is over the limit.
    """
    kind = type(answer)
    if answer is None or kind is bool or (kind is int and -_SAFE_INTEGER < answer < _SAFE_INTEGER):
        return PureEnd(answer, _SMALL_BYTES)
    if kind is str and len(answer) <= _SHORT_TEXT and answer.isascii():
        return PureEnd(redaction.value(answer), len(answer) + 2)
    content = encoded_json(redaction.value(plain_json(answer)))
    if len(content) > STORED_VALUE_LIMIT_BYTES:
        raise ResultTooLarge(
            f"The result of {spec.name!r} has {len(content):,} bytes as JSON, over the limit of "
            f"{STORED_VALUE_LIMIT_BYTES:,}; write it to a file and return its name"
        )
    return PureEnd(json_from_bytes(content), len(content))


async def _not_here(call: ModelCall) -> ModelAnswer:  # noqa: ARG001 - the signature of who is asked
    raise NotInRegion("A model is asked by a call of its own")


def _no_beat(details: Any, progress: Any) -> None:
    """A region lives by its slices, so what a tool says of its progress interests nobody."""
