"""What a running tool can ask about its own call: `context()`.

The wrapper in `activities` (or `dagwright.tools.testing`) makes the context and enters it around the call.
This module imports nothing of Temporal, so a tool can be tested without it.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import structlog

from dagwright.planning.model_calls.calls import NOTHING_SET, Message, ModelConfig, OfferedTool, OutputSchema
from dagwright.tools.environment import ToolEnvironment
from dagwright.tools.errors import NoToolContext
from dagwright.tools.questions import PURPOSE, Models, Question, model_call, no_models
from dagwright.tools.results import plain_json


@dataclass(frozen=True, slots=True)
class CallIdentity:
    """Says which call of which node a tool is serving.

    Args:
        idempotency_key: the same for every attempt of one effect, another one for every other effect.
        node: id of the node, as the activity has it.
        workflow_id: id of the run.
        attempt: 1 for the first.
        last_heartbeat: what an earlier attempt gave to `heartbeat`, `None` if nothing.
        answers: what people answered to what the call has asked before.
        checkpoint: what it kept for itself then, `None` if nothing.
        checked_version: version of the tool that the plan was checked against, `None` if that does not matter.
        model: which model the request wants asked, and how, as far as it says so.
        owner: of the API key that the run was started with; `None` if it was started without one.
        effects: of the call, as `Effects` has them.
        secret_hosts: of each secret in the arguments, the hosts that it may be sent to; `None` if they hold none.
    """

    idempotency_key: str
    node: str
    workflow_id: str
    attempt: int = 1
    last_heartbeat: Any = None
    answers: tuple[Any, ...] = ()
    checkpoint: Any = None
    checked_version: str | None = None
    model: ModelConfig = NOTHING_SET
    owner: str | None = None
    effects: str = "write"
    secret_hosts: tuple[tuple[str, ...], ...] | None = None


_MAKING = threading.Lock()
_NO_MODELS = Models(no_models)


class Cancellation:
    """Tells a tool that it shall stop, and the wrapper whether the tool has seen it; safe across threads."""

    def __init__(self) -> None:
        self._is_requested = False
        self._wakes: threading.Event | None = None
        """Ends a wait; few tools wait, and making one takes longer than most of what a call costs."""
        self._was_seen = False

    def request(self) -> None:
        """Asks the tool to stop."""
        self._is_requested = True
        if self._wakes is not None:
            self._wakes.set()

    def look(self) -> bool:
        """Returns whether the tool shall stop, and remembers that it was told so."""
        if self._is_requested:
            self._was_seen = True
        return self._is_requested

    @property
    def is_requested(self) -> bool:
        """Whether the tool was asked to stop."""
        return self._is_requested

    @property
    def was_seen(self) -> bool:
        """Whether the tool looked after it was asked to stop."""
        return self._was_seen

    def wait(self, timeout_s: float) -> bool:
        """Blocks for at most `timeout_s` seconds; returns whether the tool shall stop."""
        with _MAKING:
            wakes = self._wakes = self._wakes or threading.Event()
        # Whoever asks sets the flag first and looks for waiters then, so one of both sees the other.
        if not self._is_requested:
            wakes.wait(timeout_s)
        return self.look()


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a call is: `done` of `total`, in the tool's own unit."""

    done: float
    total: float | None


Beat = Callable[[Any, Progress | None], None]
"""Takes the newest heartbeat details (plain JSON) and progress to whoever watches; called from any thread."""


class ToolContext:
    """The call a tool is serving: who asked, which attempt, and ways to report and to notice a cancel."""

    def __init__(
        self,
        identity: CallIdentity,
        cancellation: Cancellation,
        *,
        beat: Beat,
        environment: ToolEnvironment,
        models: Models = _NO_MODELS,
    ) -> None:
        self._identity = identity
        self._cancellation = cancellation
        self._beat = beat
        self._environment = environment
        self._models = models
        self._details: Any = identity.last_heartbeat
        self._progress: Progress | None = None
        self.places: list[str] = []
        """What the call has told to `read`, in order."""

    @property
    def idempotency_key(self) -> str:
        """The same text for every attempt of this effect; hand it to the service that makes the change."""
        return self._identity.idempotency_key

    @property
    def environment(self) -> ToolEnvironment:
        """What the settings of the process have for tools, and what its tools keep open."""
        return self._environment

    @property
    def node(self) -> str:
        """Id of the node."""
        return self._identity.node

    @property
    def workflow_id(self) -> str:
        """Id of the run."""
        return self._identity.workflow_id

    @property
    def attempt(self) -> int:
        """The attempt, 1 for the first."""
        return self._identity.attempt

    @property
    def last_heartbeat(self) -> Any:
        """What an earlier attempt gave to `heartbeat`, `None` if nothing."""
        return self._identity.last_heartbeat

    @property
    def newest_heartbeat(self) -> Any:
        """What this attempt gave to `heartbeat` last; `last_heartbeat` if it has given nothing yet."""
        return self._details

    @property
    def answers(self) -> tuple[Any, ...]:
        """What people answered to each `AskPerson` that this call has raised before, in order; empty at first."""
        return self._identity.answers

    @property
    def checkpoint(self) -> Any:
        """What this call gave to `AskPerson` as its checkpoint, `None` if nothing."""
        return self._identity.checkpoint

    @property
    def checked_version(self) -> str | None:
        """The version of the tool that the plan was checked against, `None` if that does not matter."""
        return self._identity.checked_version

    @property
    def model(self) -> ModelConfig:
        """Which model the request wants asked, and how; what it does not say is as the worker's settings say."""
        return self._identity.model

    @property
    def effects(self) -> str:
        """Effects of the call: `idempotent` if it may be repeated, also where only the plan says so."""
        return self._identity.effects

    @property
    def secret_hosts(self) -> tuple[tuple[str, ...], ...] | None:
        """Hosts that each secret in the arguments may be sent to; `None` if the arguments hold none."""
        return self._identity.secret_hosts

    @property
    def owner(self) -> str | None:
        """Owner of the API key that the run was started with; `None` if it was started without one."""
        return self._identity.owner

    @property
    def cancelled(self) -> bool:
        """Whether the call shall stop; a tool that sees `True` cleans up and returns, cancelled."""
        return self._cancellation.look()

    def wait_cancelled(self, timeout_s: float) -> bool:
        """Sleeps in a sync tool for `timeout_s` seconds, less if cancelled; returns `cancelled`."""
        return self._cancellation.wait(timeout_s)

    def ask_model(
        self,
        said: str | Sequence[Message],
        *,
        purpose: str = PURPOSE,
        output: OutputSchema | Mapping[str, Any] | None = None,
        config: ModelConfig | None = None,
        tools: Sequence[OfferedTool] = (),
    ) -> Question:
        """Returns a question to a model: `await` it, or call its `wait()` in a plain `def`.

        What the questions of a call have used is told with its result, or with its failure.

        Args:
            said: the conversation; a text is what a user says.
            purpose: tells the question from others, at the model service and in logs.
            output: JSON Schema of the answer, which is `output` of it then; without it the answer is a `text`.
            config: which model is asked and how; what is not set is as the worker's settings say.
            tools: what the model may want called; to call it is up to the tool.

        Raises:
            ValueError: nothing is said.
        """
        call = model_call(said, purpose=purpose, output=output, config=config, tools=tools)
        return Question(self._models, call, is_cancelled=self._cancellation.look)

    @property
    def log(self) -> Any:
        """A structlog logger with the run, the node and the attempt bound."""
        return structlog.get_logger("dagwright.tools").bind(
            workflow_id=self.workflow_id, node_id=self.node, attempt=self.attempt
        )

    def read(self, place: str) -> None:
        """Tells what the call has read: the path of a file, or an address; it stands in the lineage of the node.

        What may be secret in an address is hidden, and of very many places only the first are told.
        """
        if len(self.places) < PLACES_KEPT:
            self.places.append(str(place))

    def heartbeat(self, details: Any = None) -> None:
        """Says that the call lives, and keeps `details` (JSON, small) for the next attempt if this one dies.

        Raises:
            InvalidResult: `details` is not JSON.
        """
        self._details = plain_json(details)
        self._beat(self._details, self._progress)

    def progress(self, done: float, total: float | None = None) -> None:
        """Says how far the call is; keeps the details of the last heartbeat."""
        self._progress = Progress(done, total)
        self._beat(self._details, self._progress)


PLACES_KEPT = 1_000
"""Places that one call may tell of; fewer stand in its lineage, each once."""

_current: ContextVar[ToolContext | None] = ContextVar("dagwright_tool_context", default=None)


def context() -> ToolContext:
    """Returns the call that the running tool serves.

    Raises:
        NoToolContext: the caller is not running inside a tool.
    """
    found = _current.get()
    if found is None:
        raise NoToolContext(
            "context() works only inside a running tool; in a test, enter dagwright.tools.testing.tool_context() first"
        )
    return found


@contextmanager
def entered(tool_context: ToolContext) -> Iterator[ToolContext]:
    """Makes `tool_context` what `context()` returns, for the code inside the `with` block."""
    token = _current.set(tool_context)
    try:
        yield tool_context
    finally:
        _current.reset(token)


def current_owner() -> str | None:
    """Return the owner of the run whose call this is; `None` outside of tools and in a run without an owner."""
    found = _current.get()
    return None if found is None else found.owner


def note_read(*places: str) -> None:
    """Tells the call that runs, if one does, what it has read; for code that is also called outside of tools."""
    if (found := _current.get()) is not None:
        for place in places:
            found.read(place)
