"""Agent cards: the purpose and configuration of an agent, without its model.

A card is immutable plain data, so it can travel with a compiled plan. Each request names the model that an agent uses.
The code that runs agents is elsewhere.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self

import jsonschema_rs
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from dagwright.core.model.times import DurationText, parse_duration

AgentType = Literal["llm", "class", "service"]
FeedbackPolicy = Literal["never", "on_request", "always", "heuristic"]

NAME_BYTES = 100
"""Longest name of an agent; its activity adds a prefix, and activity names have at most 200 bytes."""
PROMPT_BYTES = 32_768
"""Longest prompt; a card travels with every plan that names it."""

_NAME = re.compile(r"\w(?:[\w .-]*[\w.-])?")
_PYTHON_NAME = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*(?::[^\W\d]\w*)?")
_URL = re.compile(r"https?://[^\s/?#]+\S*")
_SECRET_NAME = re.compile(r"[A-Za-z0-9_]+")

MODEL_KEYS = frozenset({"model", "model_config", "temperature", "max_tokens", "top_p"})
"""Keys that other programs put in a card; here each request sets them."""
FIELDS_OF: Mapping[AgentType, frozenset[str]] = MappingProxyType(
    {
        "llm": frozenset({"prompt", "tools", "max_turns", "token_limit", "output_schema"}),
        "class": frozenset({"class_name", "effects", "timeout"}),
        "service": frozenset({"service_url", "service_secret", "effects", "timeout"}),
    }
)
"""Agent type -> names of the fields that only agents of this type have."""
_REQUIRED: Mapping[AgentType, str] = MappingProxyType(
    {"llm": "prompt", "class": "class_name", "service": "service_url"}
)


def _checked_prompt(prompt: str) -> str:
    if not 0 < len(prompt.strip().encode(errors="replace")) <= PROMPT_BYTES:
        raise ValueError(f"a prompt has 1 to {PROMPT_BYTES:,} bytes")
    return prompt


def _distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    if duplicates := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"duplicate name {duplicates[0]!r}")
    return names


def _checked_schema(schema: dict[str, Any]) -> dict[str, Any]:
    if not jsonschema_rs.meta.is_valid(schema):
        raise ValueError("not a valid JSON Schema")
    if len(json.dumps(schema)) > PROMPT_BYTES:
        raise ValueError(f"a schema has at most {PROMPT_BYTES:,} characters")
    return schema


_Prompt = Annotated[str, AfterValidator(_checked_prompt)]
_ToolNames = Annotated[tuple[str, ...], Field(strict=False), AfterValidator(_distinct)]
_AnswerSchema = Annotated[dict[str, Any], AfterValidator(_checked_schema)]
_Turns = Annotated[int, Field(ge=1, le=200)]
_Tokens = Annotated[int, Field(ge=1)]


class AgentCard(BaseModel):
    """Purpose of an agent and its configuration; planners see `name`, `description` and `objective_template` only."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: str
    """Name in plans: letters, digits, `_`, `-`, `.` and blanks inside, at most 100 bytes."""
    description: Annotated[str, Field(min_length=1, max_length=4_000)]
    """Purpose of the agent in one or two sentences."""
    objective_template: Annotated[str, Field(min_length=1, max_length=2_000)]
    """Example of an objective, such as `Research {topic}`; shown to authors of plans, never filled in."""
    type: AgentType
    """`llm`: a model with tools; `class`: a Python class; `service`: a URL that receives the objective."""
    prompt: _Prompt | None = None
    """System prompt of an `llm` agent."""
    tools: _ToolNames = ()
    """Names of the tools that an `llm` agent may call."""
    max_turns: _Turns | None = None
    """Most model calls of an `llm` agent, the last of them without tools; default 12."""
    token_limit: _Tokens | None = None
    """Tokens of all model calls of an `llm` agent; when they are used, one final call asks the model to finish."""
    output_schema: _AnswerSchema | None = None
    """JSON Schema of the answer of an `llm` agent; default: the answer is text."""
    class_name: str | None = None
    """Class of a `class` agent: `package.module:Class`, or the bare name of a class that Dagwright ships."""
    service_url: str | None = None
    """URL of a `service` agent, which receives the objective."""
    service_secret: str | None = None
    """NAME of the `DAGWRIGHT_SECRET_NAME` that signs requests to the service; without it they are not signed."""
    effects: Literal["read", "idempotent", "write"] | None = None
    """Effects of a `class` or `service` agent, as for a tool; default `write`."""
    timeout: DurationText | None = None
    """Timeout of one attempt of a `class` or `service` agent, such as `2m`; default five minutes."""
    feedback_policy: FeedbackPolicy = "on_request"
    """When to ask a person: `never`, `on_request`, `always` (at its end), `heuristic` (if its answer is a question)."""

    @field_validator("name")
    @classmethod
    def _checked_name(cls, name: str) -> str:
        if not _NAME.fullmatch(name) or len(name.encode(errors="replace")) > NAME_BYTES:
            raise ValueError(f"a name has letters, digits, _, -, . and blanks inside, at most {NAME_BYTES} bytes")
        return name

    @field_validator("class_name")
    @classmethod
    def _checked_class_name(cls, name: str | None) -> str | None:
        if name is not None and not _PYTHON_NAME.fullmatch(name):
            raise ValueError("expected package.module:Class")
        return name

    @field_validator("service_url")
    @classmethod
    def _checked_url(cls, url: str | None) -> str | None:
        if url is not None and not _URL.fullmatch(url):
            raise ValueError("expected a URL such as https://agents.example.com/writer")
        return url

    @field_validator("service_secret")
    @classmethod
    def _checked_secret_name(cls, name: str | None) -> str | None:
        if name is not None and not _SECRET_NAME.fullmatch(name):
            raise ValueError("expected the NAME of a variable DAGWRIGHT_SECRET_NAME: letters, digits and _")
        return name

    @model_validator(mode="after")
    def _check_fields_of_type(self) -> Self:
        if not getattr(self, _REQUIRED[self.type]):
            raise ValueError(f"an agent of type {self.type} needs {_REQUIRED[self.type]!r}")
        for owner, names in FIELDS_OF.items():
            misplaced = sorted(name for name in names - FIELDS_OF[self.type] if getattr(self, name))
            if misplaced:
                raise ValueError(f"{misplaced[0]!r} is for agents of type {owner}, and this one is of type {self.type}")
        if self.type != "llm" and self.feedback_policy in ("always", "heuristic"):
            raise ValueError(f"feedback_policy {self.feedback_policy!r} is for agents of type llm")
        return self

    @property
    def version(self) -> str:
        """12 hex digits of a hash of the card."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()[:12]

    @property
    def timeout_s(self) -> float | None:
        """Seconds of one attempt, `None` if the card has no timeout."""
        return None if self.timeout is None else parse_duration(self.timeout).total_seconds()

    def to_json(self) -> dict[str, Any]:
        """Return the card as JSON, without default values."""
        return self.model_dump(mode="json", exclude_defaults=True)


def card_from_json(encoded: Any) -> AgentCard:
    """Parse the result of `AgentCard.to_json`.

    Raises:
        ValueError: the card is invalid.
    """
    return AgentCard.model_validate(encoded)


INLINE = " (inline)"
"""Suffix of the name of an inline agent; no card can have such a name."""


class InlineAgent(BaseModel):
    """An agent that the plan defines itself, without a card: a model with tools."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    prompt: _Prompt
    """System prompt of the model; the `objective` of the node has its task."""
    tools: _ToolNames = ()
    """Names of the tools that it may call."""
    max_turns: _Turns | None = None
    """Most model calls, the last of them without tools; default 12."""
    token_limit: _Tokens | None = None
    """Tokens of all model calls; when they are used, one final call asks the model to finish."""
    output_schema: _AnswerSchema | None = None
    """JSON Schema of its answer; default: the answer is text."""
    feedback_policy: FeedbackPolicy = "on_request"
    """When it may ask a person, as on a card."""

    def card(self, node: str) -> AgentCard:
        """Return the agent as a card.

        Args:
            node: id of its node, with the path to its sub-plan.
        """
        fields = {name: getattr(self, name) for name in InlineAgent.model_fields}
        # Without validation: node ids are not valid names of cards.
        return AgentCard.model_construct(
            name=node + INLINE, description="", objective_template="", type="llm", **fields
        )


def is_inline(agent: str) -> bool:
    """Return whether the agent of this name is defined in a plan itself."""
    return agent.endswith(INLINE)
