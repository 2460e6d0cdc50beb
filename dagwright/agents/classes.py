"""Agents that are Python classes: how a class is found, and what it is given.

A class agent has one method, `async def run(self, objective, context, agent)`. A new object is made for each call, so
that no call sees anything of another.
"""

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, Protocol

from dagwright.core.model.agent_cards import AgentCard
from dagwright.planning.model_calls.calls import Message, ModelConfig, OutputSchema
from dagwright.tools.context import ToolContext
from dagwright.tools.errors import AskPerson, GiveUp, ToolLoadError
from dagwright.tools.loading import load_module
from dagwright.tools.model_access import PendingModelCall

SHIPPED: Mapping[str, str] = {"ReasoningAgent": "dagwright.agents.reasoning"}
"""Classes that come with Dagwright, by their bare names -> their modules."""
PURPOSE = "agent"
"""What the questions of agents are labelled with."""


class AgentContext:
    """What an agent may do while it works: ask models, ask a person, and tell how far it is.

    Args:
        card: its own.
        call: the call that it serves.
    """

    def __init__(self, card: AgentCard, call: ToolContext) -> None:
        self.card = card
        self.call = call

    def ask(
        self,
        said: str | Sequence[Message],
        *,
        output: OutputSchema | Mapping[str, Any] | None = None,
        config: ModelConfig | None = None,
    ) -> PendingModelCall:
        """Returns a question to a model, to be awaited; what all of them use is told with the agent's node.

        Args:
            said: the conversation; a text is what a user says.
            output: JSON Schema of the answer, which is `output` of it then; without it the answer is a `text`.
            config: which model is asked and how; what is not set is as the worker's settings say.

        Raises:
            ValueError: nothing is said.
        """
        return self.call.ask_model(said, purpose=PURPOSE, output=output, config=config)

    def ask_person(self, request: Any, *, checkpoint: Any = None) -> NoReturn:
        """Ends the call with a question to a person; it is made again, with the answer in `answers`.

        Args:
            request: a text, or a JSON object with the fields of `human` in a plan.
            checkpoint: JSON that the next call finds as `checkpoint`.

        Raises:
            AskPerson: the question.
            GiveUp: the card says that this agent never asks.
        """
        raise question_to_person(self.card, request, checkpoint=checkpoint)

    @property
    def answers(self) -> tuple[Any, ...]:
        """What people answered to what this call has asked, in order."""
        return self.call.answers

    @property
    def checkpoint(self) -> Any:
        """What this call gave to `ask_person` as its checkpoint, `None` if nothing."""
        return self.call.checkpoint

    @property
    def model(self) -> ModelConfig:
        """Which model the request wants asked, and how; `ask` asks it without being told."""
        return self.call.model

    @property
    def log(self) -> Any:
        """A structlog logger with the run, the node and the attempt bound."""
        return self.call.log


class ClassAgent(Protocol):
    """What a class agent looks like."""

    async def run(self, objective: str, context: Mapping[str, Any], agent: AgentContext) -> Any:
        """Returns the result, which must be JSON or a pydantic model or dataclass.

        Args:
            objective: what it shall do.
            context: id of a node that it depends on -> the result of that, in declared order.
            agent: what it may do meanwhile.
        """


def question_to_person(card: AgentCard, request: Any, *, checkpoint: Any) -> AskPerson | GiveUp:
    """Returns what ends a call in which an agent wants to ask a person."""
    if card.feedback_policy == "never":
        return GiveUp(f"the agent {card.name!r} wants to ask a person, and its card says feedback_policy: never")
    return AskPerson(request, checkpoint=checkpoint)


def load_class(name: str, *, folder: Path) -> type[ClassAgent]:
    """Returns the class of a card.

    Args:
        name: `package.module:Class`, the same with a dot, or the bare name of a class that is shipped.
        folder: where modules may lie, beside what is installed.

    Raises:
        ToolLoadError: there is none, or it is no class of an agent; the message is one sentence.
    """
    module_name, _, class_name = name.rpartition(":" if ":" in name else ".")
    if not module_name:
        if class_name not in SHIPPED:
            shipped = ", ".join(SHIPPED)
            raise ToolLoadError(f"no class {class_name!r} comes with Dagwright ({shipped} does); name its module too")
        module_name = SHIPPED[class_name]
    found = getattr(load_module(module_name, folder), class_name, None)
    if not isinstance(found, type):
        raise ToolLoadError(f"there is no class {class_name!r} in {module_name}")
    run = getattr(found, "run", None)
    if not inspect.iscoroutinefunction(run) or not _takes(run, 4):
        raise ToolLoadError(f"{class_name} has no `async def run(self, objective, context, agent)`")
    if not _takes(found, 0):
        raise ToolLoadError(f"{class_name} cannot be made without arguments, and a new one is made for each call")
    return found


def _takes(function: Any, count: int) -> bool:
    try:
        inspect.signature(function).bind(*([None] * count))
    except (TypeError, ValueError):
        return False
    return True
