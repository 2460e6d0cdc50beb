"""Agents of a plan: the card of an agent, and its declaration as a tool with the parameters `objective` and `context`.

The card of an agent has its purpose and configuration, but no model: each model request names the model. Cards are
immutable plain data, so they travel with a declaration or a compiled plan. Because an agent is declared as a tool, it
is found, checked, described and run like any tool. A tool with an agent's name can replace the agent.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self

import jsonschema_rs
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, field_validator, model_validator

from dagwright.core.model.times import DurationText, parse_duration
from dagwright.core.model.tools import AGENT_PREFIX, INLINE_SUFFIX, Effects, ToolDeclaration, distinct_names

AgentType = Literal["llm", "class", "service"]
FeedbackPolicy = Literal["never", "on_request", "always", "heuristic"]

NAME_BYTES = 100
"""Maximum size of the name of an agent. The name with a prefix is the name of an activity, which has at most 200
bytes."""
PROMPT_BYTES = 32_768
"""Maximum size of a prompt, because each plan that uses an agent contains the card of the agent."""

_NAME = re.compile(r"\w(?:[\w .-]*[\w.-])?")
_PYTHON_NAME = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*(?::[^\W\d]\w*)?")
_URL = re.compile(r"https?://[^\s/?#]+\S*")
_SECRET_NAME = re.compile(r"[A-Za-z0-9_]+")

MODEL_KEYS = frozenset({"model", "model_config", "temperature", "max_tokens", "top_p"})
"""Keys that other programs put in a card; in Dagwright each request sets these values."""
FIELDS_BY_TYPE: Mapping[AgentType, frozenset[str]] = MappingProxyType(
    {
        "llm": frozenset({"prompt", "tools", "max_turns", "token_limit", "output_schema"}),
        "class": frozenset({"class_name", "effects", "timeout"}),
        "service": frozenset({"service_url", "service_secret", "effects", "timeout"}),
    }
)
"""Agent type -> names of the fields that only agents of this type have."""
_REQUIRED_FIELD: Mapping[AgentType, str] = MappingProxyType(
    {"llm": "prompt", "class": "class_name", "service": "service_url"}
)


def _check_prompt(prompt: str) -> str:
    if not 0 < len(prompt.strip().encode(errors="replace")) <= PROMPT_BYTES:
        raise ValueError(f"a prompt has 1 to {PROMPT_BYTES:,} bytes")
    return prompt


def _check_schema(schema: dict[str, Any]) -> dict[str, Any]:
    if not jsonschema_rs.meta.is_valid(schema):
        raise ValueError("not a valid JSON Schema")
    if len(json.dumps(schema)) > PROMPT_BYTES:
        raise ValueError(f"a schema has at most {PROMPT_BYTES:,} characters")
    return schema


_Prompt = Annotated[str, AfterValidator(_check_prompt)]
_ToolNames = Annotated[tuple[str, ...], Field(strict=False), AfterValidator(distinct_names)]
_AnswerSchema = Annotated[dict[str, Any], AfterValidator(_check_schema)]
_Turns = Annotated[int, Field(ge=1, le=200)]
_Tokens = Annotated[int, Field(ge=1)]


class AgentCard(BaseModel):
    """Purpose of an agent and its configuration. Planners see `name`, `description` and `objective_template` only."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: str
    """Name in plans: letters, digits, `_`, `-`, `.`, and spaces between them; at most 100 bytes."""
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
    """Maximum number of model calls of an `llm` agent, the last of them without tools; default 12."""
    token_limit: _Tokens | None = None
    """Maximum tokens of all model calls of an `llm` agent; when they are used up, a last call asks the model to
    finish."""
    output_schema: _AnswerSchema | None = None
    """JSON Schema of the answer of an `llm` agent; default: the answer is text."""
    class_name: str | None = None
    """Class of a `class` agent: `package.module:Class`, or the bare name of a class that Dagwright ships."""
    service_url: str | None = None
    """URL of a `service` agent, which receives the objective."""
    service_secret: str | None = None
    """`NAME` in the name of the environment variable `DAGWRIGHT_SECRET_NAME`. The value of the variable is the key that
    signs requests to the service; default: no signature."""
    effects: Literal["read", "idempotent", "write"] | None = None
    """Effects of a `class` or `service` agent, as for a tool; default `write`."""
    timeout: DurationText | None = None
    """Timeout of one attempt of a `class` or `service` agent, such as `2m`; default five minutes."""
    feedback_policy: FeedbackPolicy = "on_request"
    """When an agent asks a person: `never`, `on_request` (the model decides), `always` (a person reviews each answer of
    an `llm` agent) or `heuristic` (an answer of an `llm` agent that is a question becomes a request)."""

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if not _NAME.fullmatch(name) or len(name.encode(errors="replace")) > NAME_BYTES:
            raise ValueError(
                f"a name has letters, digits, _, -, ., and spaces between them, and at most {NAME_BYTES} bytes"
            )
        return name

    @field_validator("class_name")
    @classmethod
    def _check_class_name(cls, name: str | None) -> str | None:
        if name is not None and not _PYTHON_NAME.fullmatch(name):
            raise ValueError("expected package.module:Class")
        return name

    @field_validator("service_url")
    @classmethod
    def _check_url(cls, url: str | None) -> str | None:
        if url is not None and not _URL.fullmatch(url):
            raise ValueError("expected a URL such as https://agents.example.com/writer")
        return url

    @field_validator("service_secret")
    @classmethod
    def _check_secret_name(cls, name: str | None) -> str | None:
        if name is not None and not _SECRET_NAME.fullmatch(name):
            raise ValueError("expected the NAME of a variable DAGWRIGHT_SECRET_NAME: letters, digits and _")
        return name

    @model_validator(mode="after")
    def _check_fields_of_type(self) -> Self:
        if not getattr(self, _REQUIRED_FIELD[self.type]):
            raise ValueError(f"an agent of type {self.type} needs {_REQUIRED_FIELD[self.type]!r}")
        for owner_type, names in FIELDS_BY_TYPE.items():
            misplaced_names = sorted(name for name in names - FIELDS_BY_TYPE[self.type] if getattr(self, name))
            if misplaced_names:
                raise ValueError(
                    f"{misplaced_names[0]!r} is for agents of type {owner_type}, and this agent is of type {self.type}"
                )
        if self.type != "llm" and self.feedback_policy in ("always", "heuristic"):
            raise ValueError(f"feedback_policy {self.feedback_policy!r} is for agents of type llm")
        return self

    @property
    def version(self) -> str:
        """12 hex digits of a hash of the card."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()[:12]

    @property
    def timeout_s(self) -> float | None:
        """Timeout of one attempt in seconds, `None` if the card has no timeout."""
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


class InlineAgent(BaseModel):
    """An agent that the plan defines itself, without a card: a model with tools."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    prompt: _Prompt
    """System prompt of the model; the `objective` of the node has the task. Example: `You look things up in files.`"""
    tools: _ToolNames = ()
    """Names of the tools that the agent may call. Example: `[search_files, read_file]`"""
    max_turns: _Turns | None = None
    """Maximum number of model calls, the last of them without tools; default 12. Example: `6`"""
    token_limit: _Tokens | None = None
    """Maximum tokens of all model calls; when they are used up, a last call asks the model to finish.
    Example: `20000`"""
    output_schema: _AnswerSchema | None = None
    """JSON Schema of the answer; default: the answer is text. Example: `{type: object}`"""
    feedback_policy: FeedbackPolicy = "on_request"
    """When the agent asks a person: `never`, `on_request` (the model decides), `always` (a person reviews each answer)
    or `heuristic` (an answer that is a question becomes a request). Example: `never`"""

    def to_card(self, node_id: str) -> AgentCard:
        """Return the agent as a card.

        Args:
            node_id: id of the node with this agent; in a sub-plan, the path of the node.
        """
        fields = {name: getattr(self, name) for name in InlineAgent.model_fields}
        # Without validation: node ids are not valid names of cards.
        return AgentCard.model_construct(
            name=node_id + INLINE_SUFFIX, description="", objective_template="", type="llm", **fields
        )


AGENT_TIMEOUT_S = 300.0
"""Timeout of one attempt if the card has none. It is long, because an agent may call a model several times."""

_INPUT_SCHEMA = {
    "type": "object",
    "properties": {
        "objective": {"type": "string", "description": "task of the agent"},
        "context": {"type": "object", "description": "id of a node -> its result, in order"},
    },
    "required": ["objective"],
    "additionalProperties": False,
}


def agent_declaration(card: AgentCard) -> ToolDeclaration:
    """Return the declaration of an agent as a tool."""
    return ToolDeclaration(
        name=AGENT_PREFIX + card.name,
        effects=Effects(card.effects or "write"),
        input_schema=_INPUT_SCHEMA,
        timeout_s=card.timeout_s or AGENT_TIMEOUT_S,
        version=card.version,
        is_pinned=True,
        description=card.description,
        agent=card,
    )


DECLARATION_ADAPTER: TypeAdapter[ToolDeclaration] = TypeAdapter(ToolDeclaration)
"""JSON form of a declaration with all its fields, including the card of an agent."""
# `ToolDeclaration` refers to `AgentCard`, which its module does not import.
DECLARATION_ADAPTER.rebuild()


def tool_of_agent(name: str, tools: Mapping[str, ToolDeclaration]) -> ToolDeclaration | None:
    """Return the declaration of an agent, else a tool that replaces the agent; `None` if both are missing."""
    return tools.get(AGENT_PREFIX + name) or tools.get(name)


def agent_cards(tools: Mapping[str, ToolDeclaration]) -> Iterator[AgentCard]:
    """Return the cards of all agents among the tools, in order."""
    return (tool.agent for tool in tools.values() if tool.agent is not None)


def replace_agent_effects(declaration: ToolDeclaration, tools: Mapping[str, ToolDeclaration]) -> ToolDeclaration:
    """Replace the effects of an `llm` agent with the strongest effects of its tools.

    Other declarations are returned unchanged.

    Args:
        tools: all known tools; an unknown tool counts as `write`.
    """
    if declaration.agent is None or declaration.agent.type != "llm":
        return declaration
    tool_effects = [tools[name].effects if name in tools else Effects.WRITE for name in declaration.agent.tools]
    return replace(declaration, effects=strongest_effects(tool_effects))


def strongest_effects(effects: Iterable[Effects]) -> Effects:
    """Return the effects of an agent that calls tools with these effects: the strongest, at least `read`."""
    order = [*Effects]
    return max((Effects.READ, *effects), key=order.index)
