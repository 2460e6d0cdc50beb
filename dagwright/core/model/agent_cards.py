"""Agent cards: what an agent is for and how it works, without the model that it asks.

A card is plain data that never changes, so it can travel with a compiled plan. Which model an agent asks is said by
each request. The code that runs agents lives elsewhere.
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
"""The name of its activity has more before it, and at most 200 bytes."""
PROMPT_BYTES = 32_768
"""A card travels with every plan that names it."""

_NAME = re.compile(r"\w(?:[\w .-]*[\w.-])?")
_PYTHON_NAME = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*(?::[^\W\d]\w*)?")
_WEB_ADDRESS = re.compile(r"https?://[^\s/?#]+\S*")
_SECRET_NAME = re.compile(r"[A-Za-z0-9_]+")

MODEL_WORDS = frozenset({"model", "model_config", "temperature", "max_tokens", "top_p"})
"""What other programs have in a card, and here each request says."""
FIELDS_OF: Mapping[AgentType, frozenset[str]] = MappingProxyType(
    {
        "llm": frozenset({"prompt", "tools", "max_turns", "token_limit", "output_schema"}),
        "class": frozenset({"class_name", "effects", "timeout"}),
        "service": frozenset({"service_url", "service_secret", "effects", "timeout"}),
    }
)
"""What only agents of a type have -> the names of those fields."""
_REQUIRED: Mapping[AgentType, str] = MappingProxyType(
    {"llm": "prompt", "class": "class_name", "service": "service_url"}
)


def _short_prompt(prompt: str) -> str:
    if not 0 < len(prompt.strip().encode(errors="replace")) <= PROMPT_BYTES:
        raise ValueError(f"a prompt has 1 to {PROMPT_BYTES:,} bytes")
    return prompt


def _each_once(names: tuple[str, ...]) -> tuple[str, ...]:
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"{twice[0]!r} is there twice")
    return names


def _readable_schema(schema: dict[str, Any]) -> dict[str, Any]:
    if not jsonschema_rs.meta.is_valid(schema):
        raise ValueError("it is no JSON Schema")
    if len(json.dumps(schema)) > PROMPT_BYTES:
        raise ValueError(f"a schema has at most {PROMPT_BYTES:,} characters")
    return schema


_Prompt = Annotated[str, AfterValidator(_short_prompt)]
_ToolNames = Annotated[tuple[str, ...], Field(strict=False), AfterValidator(_each_once)]
_AnswerSchema = Annotated[dict[str, Any], AfterValidator(_readable_schema)]
_Turns = Annotated[int, Field(ge=1, le=200)]
_Tokens = Annotated[int, Field(ge=1)]


class AgentCard(BaseModel):
    """What an agent is for (`name`, `description`, `objective_template`: all that a planner sees), and how it works."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: str
    """As plans name it: letters, digits, `_`, `-`, `.` and blanks inside, at most 100 bytes."""
    description: Annotated[str, Field(min_length=1, max_length=4_000)]
    """What it does, in a sentence or two."""
    objective_template: Annotated[str, Field(min_length=1, max_length=2_000)]
    """What an objective looks like, such as `Research {topic}`; shown to whoever writes plans, never filled in."""
    type: AgentType
    """`llm`: a model with tools; `class`: a Python class; `service`: an address that is sent the objective."""
    prompt: _Prompt | None = None
    """What an `llm` agent is told first."""
    tools: _ToolNames = ()
    """Names of the tools that an `llm` agent may call."""
    max_turns: _Turns | None = None
    """Model calls of an `llm` agent at most, the last of them without tools; 12 if left out."""
    token_limit: _Tokens | None = None
    """Tokens of all model calls of an `llm` agent together; when they are used, one last call is asked to finish."""
    output_schema: _AnswerSchema | None = None
    """JSON Schema of what an `llm` agent answers; text if left out."""
    class_name: str | None = None
    """Of a `class` agent: `package.module:Class`, or the bare name of a class that comes with Dagwright."""
    service_url: str | None = None
    """Of a `service` agent: where the objective is sent to."""
    service_secret: str | None = None
    """NAME of the `DAGWRIGHT_SECRET_NAME` that signs what is sent there; nothing is signed without it."""
    effects: Literal["read", "idempotent", "write"] | None = None
    """What a `class` or `service` agent does to the world, as for a tool; `write` if left out."""
    timeout: DurationText | None = None
    """Of one attempt of a `class` or `service` agent, such as `2m`; five minutes if left out."""
    feedback_policy: FeedbackPolicy = "on_request"
    """When it may ask a person: `never`, when it says so, `always` at its end, or when its answer is but a question."""

    @field_validator("name")
    @classmethod
    def _known_name(cls, name: str) -> str:
        if not _NAME.fullmatch(name) or len(name.encode(errors="replace")) > NAME_BYTES:
            raise ValueError(f"a name has letters, digits, _, -, . and blanks inside, at most {NAME_BYTES} bytes")
        return name

    @field_validator("class_name")
    @classmethod
    def _importable(cls, name: str | None) -> str | None:
        if name is not None and not _PYTHON_NAME.fullmatch(name):
            raise ValueError("expected package.module:Class")
        return name

    @field_validator("service_url")
    @classmethod
    def _web_address(cls, url: str | None) -> str | None:
        if url is not None and not _WEB_ADDRESS.fullmatch(url):
            raise ValueError("it is no address such as https://agents.example.com/writer")
        return url

    @field_validator("service_secret")
    @classmethod
    def _name_of_secret(cls, name: str | None) -> str | None:
        if name is not None and not _SECRET_NAME.fullmatch(name):
            raise ValueError("expected the NAME of a variable DAGWRIGHT_SECRET_NAME: letters, digits and _")
        return name

    @model_validator(mode="after")
    def _has_what_its_type_needs(self) -> Self:
        if not getattr(self, _REQUIRED[self.type]):
            raise ValueError(f"an agent of type {self.type} needs {_REQUIRED[self.type]!r}")
        for owner, names in FIELDS_OF.items():
            strange = sorted(name for name in names - FIELDS_OF[self.type] if getattr(self, name))
            if strange:
                raise ValueError(f"{strange[0]!r} is for agents of type {owner}, and this one is of type {self.type}")
        if self.type != "llm" and self.feedback_policy in ("always", "heuristic"):
            raise ValueError(f"feedback_policy {self.feedback_policy!r} is for agents of type llm")
        return self

    @property
    def version(self) -> str:
        """12 hex digits of all that the card says."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()[:12]

    @property
    def timeout_s(self) -> float | None:
        """Seconds of one attempt, `None` if the card does not say."""
        return None if self.timeout is None else parse_duration(self.timeout).total_seconds()

    def to_json(self) -> dict[str, Any]:
        """Returns the card as JSON, without what it does not say."""
        return self.model_dump(mode="json", exclude_defaults=True)


def card_from_json(encoded: Any) -> AgentCard:
    """Returns the card that `AgentCard.to_json` told.

    Raises:
        ValueError: it is none.
    """
    return AgentCard.model_validate(encoded)


INLINE = " (inline)"
"""Ends the name of an agent that a plan makes itself; no card can be called so."""


class InlineAgent(BaseModel):
    """An agent that stands in a plan itself, in place of the name of one: a model with tools."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    prompt: _Prompt
    """What the model is told first; what it is to do stands in the `objective` of the node."""
    tools: _ToolNames = ()
    """Names of the tools that it may call."""
    max_turns: _Turns | None = None
    """Model calls at most, the last of them without tools; 12 if left out."""
    token_limit: _Tokens | None = None
    """Tokens of all model calls together; when they are used, one last call is asked to finish."""
    output_schema: _AnswerSchema | None = None
    """JSON Schema of its answer; text if left out."""
    feedback_policy: FeedbackPolicy = "on_request"
    """When it may ask a person, as on a card."""

    def card(self, node: str) -> AgentCard:
        """Returns it as a card.

        Args:
            node: id of its node, with the path to its sub-plan.
        """
        fields = {name: getattr(self, name) for name in InlineAgent.model_fields}
        # Not validated again: ids of nodes are no names of cards.
        return AgentCard.model_construct(
            name=node + INLINE, description="", objective_template="", type="llm", **fields
        )


def is_inline(agent: str) -> bool:
    """Tells whether an agent of this name stands in a plan itself."""
    return agent.endswith(INLINE)
