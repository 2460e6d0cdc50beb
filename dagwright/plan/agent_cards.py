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
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from dagwright.plan.durations import DurationText, parse_duration

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
    prompt: str | None = None
    """What an `llm` agent is told first."""
    tools: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Names of the tools that an `llm` agent may call."""
    max_turns: Annotated[int | None, Field(ge=1, le=200)] = None
    """Model calls of an `llm` agent at most, the last of them without tools; 12 if left out."""
    token_limit: Annotated[int | None, Field(ge=1)] = None
    """Tokens of all model calls of an `llm` agent together; when they are used, one last call is asked to finish."""
    output_schema: dict[str, Any] | None = None
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

    @field_validator("prompt")
    @classmethod
    def _short_prompt(cls, prompt: str | None) -> str | None:
        if prompt is not None and not 0 < len(prompt.strip().encode(errors="replace")) <= PROMPT_BYTES:
            raise ValueError(f"a prompt has 1 to {PROMPT_BYTES:,} bytes")
        return prompt

    @field_validator("tools")
    @classmethod
    def _each_tool_once(cls, tools: tuple[str, ...]) -> tuple[str, ...]:
        if twice := [name for name in tools if tools.count(name) > 1]:
            raise ValueError(f"{twice[0]!r} is there twice")
        return tools

    @field_validator("output_schema")
    @classmethod
    def _readable_schema(cls, schema: dict[str, Any] | None) -> dict[str, Any] | None:
        if schema is not None:
            if not jsonschema_rs.meta.is_valid(schema):
                raise ValueError("it is no JSON Schema")
            if len(json.dumps(schema)) > PROMPT_BYTES:
                raise ValueError(f"a schema has at most {PROMPT_BYTES:,} characters")
        return schema

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
