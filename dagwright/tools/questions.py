"""How a running tool asks a model: `await context().ask_model(…)`, or `context().ask_model(…).wait()` in a plain `def`.

Whoever makes the context says who is asked; this module knows no client, and imports nothing of Temporal.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from concurrent.futures import CancelledError, wait
from dataclasses import dataclass
from typing import Any

from dagwright.planning.model_calls.calls import (
    CallLabels,
    Message,
    ModelAnswer,
    ModelCall,
    ModelConfig,
    OfferedTool,
    OutputSchema,
    user,
)
from dagwright.tools.errors import GiveUp

Ask = Callable[[ModelCall], Awaitable[ModelAnswer]]
"""Asks once; `complete` of a `ModelClient` is one."""

PURPOSE = "tool"
_LOOK_S = 0.1
"""How often a thread that waits for an answer looks whether its call was cancelled."""


@dataclass(frozen=True, slots=True)
class Models:
    """Who answers the questions of a tool.

    Args:
        ask: asks once.
        loop: the event loop that `ask` belongs to; `None` makes one for each question that is waited for.
    """

    ask: Ask
    loop: asyncio.AbstractEventLoop | None = None


async def no_models(call: ModelCall) -> ModelAnswer:  # noqa: ARG001 - the signature of who is asked
    """Has nobody to ask."""
    raise GiveUp("There is no model to ask here; in a test, give tool_context() an `ask`")


def model_call(
    said: str | Sequence[Message],
    *,
    purpose: str,
    output: OutputSchema | Mapping[str, Any] | None,
    config: ModelConfig | None,
    tools: Sequence[OfferedTool],
) -> ModelCall:
    """Returns what is asked; see `ToolContext.ask_model`.

    Raises:
        ValueError: nothing is said.
    """
    messages = (user(said),) if isinstance(said, str) else tuple(said)
    if not messages:
        raise ValueError("ask_model was given no message; nothing would be said to the model")
    schema = OutputSchema("answer", output) if isinstance(output, Mapping) else output
    labels = CallLabels(purpose=purpose)
    return ModelCall(messages, config or ModelConfig(), tools=tuple(tools), output=schema, labels=labels)


class Question:
    """What a tool asks a model; it is asked when somebody awaits it or waits for it, and no sooner."""

    def __init__(self, models: Models, call: ModelCall, *, is_cancelled: Callable[[], bool]) -> None:
        self._models = models
        self._call = call
        self._is_cancelled = is_cancelled

    def __await__(self) -> Generator[Any, None, ModelAnswer]:
        return self._models.ask(self._call).__await__()

    def wait(self) -> ModelAnswer:
        """Returns the answer to a tool that is a plain `def`.

        Raises:
            ModelFailure: there is none that is of use.
            CancelledError: the call of the tool was cancelled meanwhile.
            RuntimeError: the caller is an `async def`, which has to await the question.
        """
        if running_loop() is not None:
            raise RuntimeError("an async def asks a model by `await context().ask_model(…)`, without wait()")
        if self._models.loop is None:
            return asyncio.run(self._answer())
        asked = asyncio.run_coroutine_threadsafe(self._answer(), self._models.loop)
        while not wait([asked], timeout=_LOOK_S).done:
            if self._is_cancelled():
                asked.cancel()
                raise CancelledError
        return asked.result()

    async def _answer(self) -> ModelAnswer:
        return await self


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Returns the event loop that runs in this thread, if one does."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
