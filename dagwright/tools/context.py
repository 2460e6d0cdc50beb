"""`context()`, which returns the context of a running tool call, and the model calls of the tool.

The wrapper in `activities` (or `dagwright.tools.testing`) creates the context and activates it around the call. A tool
calls models with `await context().ask_model(…)`, or `context().ask_model(…).wait()` in a plain `def`; the creator of
the context provides the model client. Tools can be tested without Temporal, because this module does not import it.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, wait
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import structlog

from dagwright.planning.model_calls.model_requests import (
    DEFAULT_CONFIG,
    CallLabels,
    Message,
    ModelCall,
    ModelConfig,
    ModelResponse,
    OfferedTool,
    OutputSchema,
    user,
)
from dagwright.tools.environment import ToolEnvironment
from dagwright.tools.errors import GiveUp, NoToolContext
from dagwright.tools.result_json import plain_json

CallModel = Callable[[ModelCall], Awaitable[ModelResponse]]
"""Make one model call; `complete` of a `ModelClient` is such a function."""

DEFAULT_PURPOSE = "tool"
"""Label of a tool's model calls without a `purpose`."""
_POLL_INTERVAL_S = 0.1
"""How often a thread that waits for a response checks for cancellation."""


@dataclass(frozen=True, slots=True)
class ModelAccess:
    """The model client of a tool.

    Args:
        ask: makes one model call.
        loop: the event loop of `ask`; `None` creates one for each blocking call.
    """

    ask: CallModel
    loop: asyncio.AbstractEventLoop | None = None


async def no_model(call: ModelCall) -> ModelResponse:  # noqa: ARG001 - the signature of a model call
    """Fail, because there is no model client."""
    raise GiveUp("no model client here; in a test, pass `ask` to tool_context()")


def build_model_call(
    prompt: str | Sequence[Message],
    *,
    purpose: str,
    output: OutputSchema | Mapping[str, Any] | None,
    config: ModelConfig | None,
    tools: Sequence[OfferedTool],
) -> ModelCall:
    """Build a model call; see `ToolContext.ask_model`.

    Raises:
        ValueError: there is no message.
    """
    messages = (user(prompt),) if isinstance(prompt, str) else tuple(prompt)
    if not messages:
        raise ValueError("ask_model needs at least one message")
    schema = OutputSchema("answer", output) if isinstance(output, Mapping) else output
    labels = CallLabels(purpose=purpose)
    return ModelCall(messages, config or ModelConfig(), tools=tuple(tools), output=schema, labels=labels)


class PendingModelCall:
    """A model call of a tool. It starts when the tool calls `await` or `wait()`."""

    def __init__(self, models: ModelAccess, call: ModelCall, *, is_cancelled: Callable[[], bool]) -> None:
        self._models = models
        self._call = call
        self._is_cancelled = is_cancelled

    def __await__(self) -> Generator[Any, None, ModelResponse]:
        return self._models.ask(self._call).__await__()

    def wait(self) -> ModelResponse:
        """Block until the response arrives; for tools that are a plain `def`.

        Raises:
            ModelFailure: the call failed or its response is unusable.
            CancelledError: the tool call was cancelled meanwhile.
            RuntimeError: the caller is an `async def`, which must use `await`.
        """
        if running_loop() is not None:
            raise RuntimeError("an async def must use `await context().ask_model(…)` instead of wait()")
        if self._models.loop is None:
            return asyncio.run(self._response())
        future = asyncio.run_coroutine_threadsafe(self._response(), self._models.loop)
        while not wait([future], timeout=_POLL_INTERVAL_S).done:
            if self._is_cancelled():
                future.cancel()
                raise CancelledError
        return future.result()

    async def _response(self) -> ModelResponse:
        return await self


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the running event loop of this thread, if there is one."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


@dataclass(frozen=True, slots=True)
class CallIdentity:
    """Identity and input of the call that a tool serves.

    Args:
        idempotency_key: the same for every attempt of one effect, different for every other effect.
        node_id: ID of the node, as in the activity ID.
        run_id: ID of the run.
        attempt: 1 for the first.
        last_heartbeat: heartbeat details of an earlier attempt, `None` if no earlier attempt sent a heartbeat.
        answers: people's answers to earlier requests of the call.
        checkpoint: checkpoint of the latest request; `None` if the request had no checkpoint.
        checked_version: tool version that the plan was checked against, `None` if any version will do.
        model: model configuration of the run.
        owner: owner of the API key that the run was started with; `None` if the run was started without a key.
        effects: effects of the call, a value of `Effects`.
        secret_hosts: for each secret in the arguments, the permitted hosts; `None` if there are no secrets.
    """

    idempotency_key: str
    node_id: str
    run_id: str
    attempt: int = 1
    last_heartbeat: Any = None
    answers: tuple[Any, ...] = ()
    checkpoint: Any = None
    checked_version: str | None = None
    model: ModelConfig = DEFAULT_CONFIG
    owner: str | None = None
    effects: str = "write"
    secret_hosts: tuple[tuple[str, ...], ...] | None = None


_EVENT_LOCK = threading.Lock()
_NO_MODELS = ModelAccess(no_model)


class Cancellation:
    """A request to stop a tool, and whether the tool has seen it; thread-safe."""

    def __init__(self) -> None:
        self._is_requested = False
        self._event: threading.Event | None = None
        """Wakes a waiting tool; created on demand, because few tools wait and an event is expensive to create."""
        self._was_noticed = False

    def request(self) -> None:
        """Request the tool to stop."""
        self._is_requested = True
        if self._event is not None:
            self._event.set()

    def check(self) -> bool:
        """Return whether the tool should stop, and record that it has seen the request."""
        if self._is_requested:
            self._was_noticed = True
        return self._is_requested

    @property
    def is_requested(self) -> bool:
        """Whether the tool was requested to stop."""
        return self._is_requested

    @property
    def was_noticed(self) -> bool:
        """Whether the tool checked after the request."""
        return self._was_noticed

    def wait(self, timeout_s: float) -> bool:
        """Block for at most `timeout_s` seconds; return whether the tool should stop."""
        with _EVENT_LOCK:
            event = self._event = self._event or threading.Event()
        # `request` sets the flag before it reads `_event`, so no request is missed.
        if not self._is_requested:
            event.wait(timeout_s)
        return self.check()


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a call: `done` of `total`, in the tool's own unit."""

    done: float
    total: float | None


SendHeartbeat = Callable[[Any, Progress | None], None]
"""Send the latest heartbeat details (plain JSON) and progress. May be called from any thread."""


class ToolContext:
    """The call that a tool serves: its run and attempt, and methods to report progress and to detect cancellation."""

    def __init__(
        self,
        identity: CallIdentity,
        cancellation: Cancellation,
        *,
        send_heartbeat: SendHeartbeat,
        environment: ToolEnvironment,
        models: ModelAccess = _NO_MODELS,
    ) -> None:
        self._identity = identity
        self._cancellation = cancellation
        self._send_heartbeat = send_heartbeat
        self._environment = environment
        self._models = models
        self._details: Any = identity.last_heartbeat
        self._progress: Progress | None = None
        self.read_locations: list[str] = []
        """The locations passed to `record_read`, in order."""

    @property
    def idempotency_key(self) -> str:
        """The same text for every attempt of this effect; pass it to the service that makes the change."""
        return self._identity.idempotency_key

    @property
    def environment(self) -> ToolEnvironment:
        """The settings of the process for tools, and the resources that its tools share."""
        return self._environment

    @property
    def node_id(self) -> str:
        """ID of the node."""
        return self._identity.node_id

    @property
    def run_id(self) -> str:
        """ID of the run."""
        return self._identity.run_id

    @property
    def attempt(self) -> int:
        """The attempt, 1 for the first."""
        return self._identity.attempt

    @property
    def last_heartbeat(self) -> Any:
        """Heartbeat details of an earlier attempt, `None` if no earlier attempt sent a heartbeat."""
        return self._identity.last_heartbeat

    @property
    def current_heartbeat(self) -> Any:
        """Details of this attempt's latest heartbeat; before the first one, `last_heartbeat`."""
        return self._details

    @property
    def answers(self) -> tuple[Any, ...]:
        """People's answers to the `AskPerson` requests that this call raised before, in order; empty at first."""
        return self._identity.answers

    @property
    def checkpoint(self) -> Any:
        """Checkpoint that this call passed to its latest `AskPerson`; `None` if the call passed no checkpoint."""
        return self._identity.checkpoint

    @property
    def checked_version(self) -> str | None:
        """Tool version that the plan was checked against, `None` if any version will do."""
        return self._identity.checked_version

    @property
    def model(self) -> ModelConfig:
        """Model configuration of the run. The worker's settings apply to unset fields."""
        return self._identity.model

    @property
    def effects(self) -> str:
        """Effects of the call; `idempotent` for a `write` tool if the plan declares that the call may be repeated."""
        return self._identity.effects

    @property
    def secret_hosts(self) -> tuple[tuple[str, ...], ...] | None:
        """Permitted hosts of each secret in the arguments; `None` if there are no secrets."""
        return self._identity.secret_hosts

    @property
    def owner(self) -> str | None:
        """Owner of the API key that the run was started with; `None` if the run was started without a key."""
        return self._identity.owner

    @property
    def cancelled(self) -> bool:
        """Whether the call is cancelled. A tool that sees `True` cleans up and returns."""
        return self._cancellation.check()

    def wait_for_cancellation(self, timeout_s: float) -> bool:
        """Block a sync tool for `timeout_s` seconds, or until the call is cancelled; return `cancelled`."""
        return self._cancellation.wait(timeout_s)

    def ask_model(
        self,
        messages: str | Sequence[Message],
        *,
        purpose: str = DEFAULT_PURPOSE,
        output: OutputSchema | Mapping[str, Any] | None = None,
        config: ModelConfig | None = None,
        tools: Sequence[OfferedTool] = (),
    ) -> PendingModelCall:
        """Return a model call: `await` it, or call its `wait()` in a plain `def`.

        The usage of the model calls is recorded with the result or failure of the tool call.

        Args:
            messages: the conversation; a string is a user message.
            purpose: label of the model call, at the provider and in logs.
            output: JSON Schema of the answer. With a schema, the answer is in the response's field `output`; without a
                schema, in the field `text`.
            config: model configuration; the worker's settings apply to unset fields.
            tools: tools that the model may request; the calling tool decides whether to call them.

        Raises:
            ValueError: there is no message.
        """
        call = build_model_call(messages, purpose=purpose, output=output, config=config, tools=tools)
        return PendingModelCall(self._models, call, is_cancelled=self._cancellation.check)

    @property
    def log(self) -> Any:
        """A structlog logger with the run, the node and the attempt bound."""
        return structlog.get_logger("dagwright.tools").bind(
            run_id=self.run_id, node_id=self.node_id, attempt=self.attempt
        )

    def record_read(self, location: str) -> None:
        """Record a file path or URL that the call has read, for the lineage of the node.

        Secrets in a URL are redacted. At most `MAX_READ_LOCATIONS` per call are recorded.
        """
        if len(self.read_locations) < MAX_READ_LOCATIONS:
            self.read_locations.append(str(location))

    def heartbeat(self, details: Any = None) -> None:
        """Send a heartbeat with `details` (JSON, small), which the next attempt receives if this attempt dies.

        Raises:
            InvalidResult: `details` is not JSON.
        """
        self._details = plain_json(details)
        self._send_heartbeat(self._details, self._progress)

    def progress(self, done: float, total: float | None = None) -> None:
        """Report progress; keep the details of the last heartbeat."""
        self._progress = Progress(done, total)
        self._send_heartbeat(self._details, self._progress)


MAX_READ_LOCATIONS = 1_000
"""Maximum number of recorded locations per call. The lineage contains each location once, up to a smaller limit."""

_current: ContextVar[ToolContext | None] = ContextVar("dagwright_tool_context", default=None)


def context() -> ToolContext:
    """Return the context of the call of the running tool.

    Raises:
        NoToolContext: the caller is not running inside a tool.
    """
    current_context = _current.get()
    if current_context is None:
        raise NoToolContext(
            "context() works only inside a running tool; in a test, enter dagwright.tools.testing.tool_context() first"
        )
    return current_context


@contextmanager
def active_context(tool_context: ToolContext) -> Iterator[ToolContext]:
    """Make `tool_context` the result of `context()` inside the `with` block."""
    token = _current.set(tool_context)
    try:
        yield tool_context
    finally:
        _current.reset(token)


def current_owner() -> str | None:
    """Return the owner of the current call's run; `None` outside of tools and in a run without an owner."""
    current_context = _current.get()
    return None if current_context is None else current_context.owner


def record_reads(*read_locations: str) -> None:
    """Record locations that the current call has read; do nothing outside of tools."""
    if (current_context := _current.get()) is not None:
        for location in read_locations:
            current_context.record_read(location)
