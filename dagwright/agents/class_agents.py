"""Class agents: loading the class, and the context that the class receives.

A class agent has one method, `async def run(self, objective, context, agent)`. Each call creates a new object, so calls
share no state.
"""

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, Protocol

from dagwright.core.model.agents import AgentCard
from dagwright.planning.model_calls.model_requests import Message, ModelConfig, OutputSchema
from dagwright.tools.context import PendingModelCall, ToolContext
from dagwright.tools.errors import AskPerson, GiveUp, ToolLoadError
from dagwright.tools.tool_files import load_module

BUILT_IN_CLASSES: Mapping[str, str] = {"ReasoningAgent": "dagwright.agents.reasoning"}
"""Name of a class that Dagwright provides -> its module."""
MODEL_CALL_PURPOSE = "agent"
"""Label of the model calls of agents."""


class AgentContext:
    """Context of a call of an agent: call models, ask a person, and report progress.

    Args:
        card: the card of the agent.
        call: the tool call that the agent serves.
    """

    def __init__(self, card: AgentCard, call: ToolContext) -> None:
        self.card = card
        self.call = call

    def ask(
        self,
        messages: str | Sequence[Message],
        *,
        output: OutputSchema | Mapping[str, Any] | None = None,
        config: ModelConfig | None = None,
    ) -> PendingModelCall:
        """Create a call of a model, to be awaited. The node of the agent reports the usage of all its model calls.

        Args:
            messages: the conversation; a string is one user message.
            output: JSON Schema of the answer. With a schema, the answer is in the field `output`; without a schema, in
                the field `text`.
            config: the model and its settings; settings of the worker process apply to fields that are not set.

        Raises:
            ValueError: the conversation is empty.
        """
        return self.call.ask_model(messages, purpose=MODEL_CALL_PURPOSE, output=output, config=config)

    def ask_person(self, request: Any, *, checkpoint: Any = None) -> NoReturn:
        """End the call with a question to a person. The agent is called again with the answer in `answers`.

        Args:
            request: a string, or a JSON object with the fields of `human` in a plan.
            checkpoint: JSON that the next call finds in `checkpoint`.

        Raises:
            AskPerson: the question.
            GiveUp: the card sets `feedback_policy: never`.
        """
        raise question_or_give_up(self.card, request, checkpoint=checkpoint)

    @property
    def answers(self) -> tuple[Any, ...]:
        """Answers of people to the questions of this call, in order."""
        return self.call.answers

    @property
    def checkpoint(self) -> Any:
        """Checkpoint that this call passed to `ask_person`, or `None`."""
        return self.call.checkpoint

    @property
    def model(self) -> ModelConfig:
        """Model and settings of the run; `ask` uses them by default."""
        return self.call.model

    @property
    def log(self) -> Any:
        """Structlog logger that adds the run, the node and the attempt to each entry."""
        return self.call.log


class ClassAgent(Protocol):
    """Interface of a class agent."""

    async def run(self, objective: str, context: Mapping[str, Any], agent: AgentContext) -> Any:
        """Return the result: JSON, a pydantic model or a dataclass.

        Args:
            objective: the task, in words.
            context: id of a dependency -> its result, in declared order.
            agent: the context of the call.
        """


def question_or_give_up(card: AgentCard, request: Any, *, checkpoint: Any) -> AskPerson | GiveUp:
    """Return the error that ends a call: a question to a person, or `GiveUp` if the card allows no questions."""
    if card.feedback_policy == "never":
        return GiveUp(f"the agent {card.name!r} wants to ask a person, but its card has feedback_policy: never")
    return AskPerson(request, checkpoint=checkpoint)


def load_class(name: str, *, folder: Path) -> type[ClassAgent]:
    """Load the class of a card.

    Args:
        name: `package.module:Class`, `package.module.Class`, or the name of a class that Dagwright provides.
        folder: searched for modules in addition to the installed packages.

    Raises:
        ToolLoadError: the class does not exist or is not the class of an agent; the message is one sentence.
    """
    module_name, _, class_name = name.rpartition(":" if ":" in name else ".")
    if not module_name:
        if class_name not in BUILT_IN_CLASSES:
            known_names = ", ".join(BUILT_IN_CLASSES)
            raise ToolLoadError(f"Dagwright has no class {class_name!r}, only {known_names}; name the module too")
        module_name = BUILT_IN_CLASSES[class_name]
    loaded_class = getattr(load_module(module_name, folder), class_name, None)
    if not isinstance(loaded_class, type):
        raise ToolLoadError(f"there is no class {class_name!r} in {module_name}")
    run = getattr(loaded_class, "run", None)
    if not inspect.iscoroutinefunction(run) or not _accepts_arguments(run, 4):
        raise ToolLoadError(f"{class_name} has no `async def run(self, objective, context, agent)`")
    if not _accepts_arguments(loaded_class, 0):
        raise ToolLoadError(
            f"{class_name} must have a constructor without arguments, because each call creates an object"
        )
    return loaded_class


def _accepts_arguments(function: Any, count: int) -> bool:
    try:
        inspect.signature(function).bind(*([None] * count))
    except (TypeError, ValueError):
        return False
    return True
