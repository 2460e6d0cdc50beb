"""Model calls of a running tool: `await context().ask_model(…)`, or `context().ask_model(…).wait()` in a plain `def`.

The creator of the context provides the model client; this module knows no client and does not import Temporal.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from concurrent.futures import CancelledError, wait
from dataclasses import dataclass
from typing import Any

from dagwright.planning.model_calls.model_requests import (
    CallLabels,
    Message,
    ModelCall,
    ModelConfig,
    ModelResponse,
    OfferedTool,
    OutputSchema,
    user,
)
from dagwright.tools.errors import GiveUp

CallModel = Callable[[ModelCall], Awaitable[ModelResponse]]
"""Make one model call; `complete` of a `ModelClient` is such a function."""

PURPOSE = "tool"
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


def model_call(
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
    """A model call of a tool; it starts when it is awaited or waited for."""

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
            return asyncio.run(self._answer())
        future = asyncio.run_coroutine_threadsafe(self._answer(), self._models.loop)
        while not wait([future], timeout=_POLL_INTERVAL_S).done:
            if self._is_cancelled():
                future.cancel()
                raise CancelledError
        return future.result()

    async def _answer(self) -> ModelResponse:
        return await self


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the running event loop of this thread, if there is one."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
