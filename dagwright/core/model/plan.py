"""The plan model: every dialect is compiled to it (docs/guides/writing-plans.md).

The JSON Schema in `docs/reference/schemas/plan.schema.json` is generated from these classes. They define the values of
single fields; `validation` checks how fields relate to each other.
"""

import unicodedata
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    JsonValue,
    StringConstraints,
    Tag,
    WithJsonSchema,
)

from dagwright.core.expressions.references import MAX_ID_BYTES
from dagwright.core.model.agent_cards import InlineAgent
from dagwright.core.model.times import parse_duration

_RESERVED = {
    "item": "the item of a for_each",
    "index": "the position of an item",
    "inputs": "the inputs of the plan",
    "secret": "secrets",
    "~budget": "requests for more budget",
}
RESERVED_IDS = frozenset(_RESERVED)
"""Names with another meaning inside a reference, or ids of requests of the run itself."""


def _checked_id(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if not value.isascii():
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise ValueError("the id holds a lone surrogate, which is not a character")
        value = unicodedata.normalize("NFC", value)
    if not value.strip():
        raise ValueError("an id must not be empty")
    if len(value.encode()) > MAX_ID_BYTES:
        raise ValueError(f"the id has {len(value.encode())} bytes of UTF-8; at most {MAX_ID_BYTES} are allowed")
    if value in RESERVED_IDS:
        reserved = ", ".join(sorted(RESERVED_IDS))
        raise ValueError(f"{value!r} is reserved for {_RESERVED[value]}; an id is any text but {reserved}")
    return value


def _normal(names: list[str]) -> list[str]:
    if all(map(str.isascii, names)):
        return names
    return [unicodedata.normalize("NFC", name) for name in names]


def _checked_duration(value: Any) -> Any:
    return parse_duration(value) if isinstance(value, str) else value


NodeId = Annotated[str, BeforeValidator(_checked_id)]
NodeNames = Annotated[list[str], AfterValidator(_normal)]
"""Ids of other nodes as written, in the normal form of ids."""
Duration = Annotated[
    timedelta,
    BeforeValidator(_checked_duration),
    WithJsonSchema({"type": "string", "pattern": r"^[0-9]{1,9}(\.[0-9]{1,3})?(ms|s|m|h|d)$"}),
]
JsonObject = dict[str, Any]
"""A JSON object; the reader of the document has checked that it holds JSON only."""


class _Strict(BaseModel):
    """Base of every part of a plan: unknown keys are refused, nothing is coerced, all fields are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, arbitrary_types_allowed=False)


class Retry(_Strict):
    """How often and how fast a failed attempt is retried."""

    max_attempts: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    first_delay: Duration | None = None
    factor: Annotated[float, Field(ge=1, le=1_000)] | None = None
    max_delay: Duration | None = None


class AtLeast(_Strict):
    """`join: {at_least: k}`: the node starts when k of its dependencies are done."""

    at_least: Annotated[int, Field(ge=1)]


class OnErrorValue(_Strict):
    """`on_error: {value: …}`: the node completes with this value when it fails."""

    value: JsonValue


class Cache(_Strict):
    """`cache: {ttl: 1h}`: how long the result of an equal call may be reused."""

    ttl: Duration


class OnTimeoutDefault(_Strict):
    """The answer that is used if the deadline passes."""

    default: JsonValue


class OnTimeoutEscalate(_Strict):
    """The next assignee if the deadline passes, and the action if their deadline passes too."""

    escalate: str
    then: "Literal['fail'] | OnTimeoutDefault | OnTimeoutEscalate" = "fail"


OnTimeout = Literal["fail"] | OnTimeoutDefault | OnTimeoutEscalate


class Human(_Strict):
    """A question to a person."""

    type: Literal["APPROVAL", "SELECTION", "GUIDANCE", "CLARIFICATION", "INFORMATION"] = "APPROVAL"
    prompt: str = ""
    # An attribute `schema` would hide a method of pydantic's models, so attribute and key have different names.
    answer_schema: Annotated[JsonObject | None, Field(alias="schema")] = None
    options: list[JsonValue] | str | None = None
    multiple: bool = False
    allow_text: bool = False
    """Whether a SELECTION also accepts a text as its answer."""
    assignee: str | None = None
    channel: Literal["any", "inbox"] = "any"
    """`inbox`: answers through a model's tool result or an MCP call are rejected."""
    deadline: Duration | None = None
    reminder: Duration | None = None
    on_timeout: OnTimeout = "fail"


AGENT_NAME, AGENT_INSIDE = "name", "inside"
"""Forms of `agent`; pydantic puts one of them into the location of an error."""


def _way_of_agent(value: Any) -> str:
    return AGENT_INSIDE if isinstance(value, dict | InlineAgent) else AGENT_NAME


AgentOfNode = Annotated[
    Annotated[str, Tag(AGENT_NAME)] | Annotated[InlineAgent, Tag(AGENT_INSIDE)], Discriminator(_way_of_agent)
]


class Node(_Strict):
    """One step of a plan: exactly one of `tool | agent | human | plan`."""

    id: NodeId
    title: str | None = None
    tool: str | None = None
    agent: AgentOfNode | None = None
    """The name of an agent, or an inline agent; in a checked plan always a name."""
    human: Human | None = None
    plan: JsonObject | str | None = None
    """A complete plan in any dialect, or the path of a file with a plan."""
    arguments: JsonObject = Field(default_factory=dict)
    objective: str | None = None
    for_each: str | list[JsonValue] | None = None
    key: str | None = None
    max_parallel: Annotated[int, Field(ge=1)] | None = None
    when: str | None = None
    join: Literal["all", "any", "all_done"] | AtLeast = "all"
    depends_on: NodeNames = Field(default_factory=list)
    retry: Retry | None = None
    timeout: Duration | None = None
    heartbeat: Duration | None = None
    on_error: Literal["block", "skip", "ask", "replan"] | OnErrorValue = "block"
    approval: Literal["policy", "required", "never"] | Human = "policy"
    priority: Annotated[int, Field(ge=1, le=5)] = 3
    effects: Literal["idempotent"] | None = None
    """`idempotent`: the call may be repeated; allowed only if the effects of the tool depend on its arguments."""
    cache: Literal["off"] | Cache | None = None
    """`None` uses the effects of the tool: results of a `pure` tool are reused, results of other tools never."""
    metadata: JsonObject = Field(default_factory=dict)

    @property
    def agent_name(self) -> str | None:
        """Name of its agent; `None` if it has no agent, or an inline agent that was not checked yet."""
        return self.agent if isinstance(self.agent, str) else None


class Input(BaseModel):
    """A value that a person gives before the run: a JSON Schema with a prompt."""

    model_config = ConfigDict(extra="allow", frozen=True)

    prompt: str | None = None
    type: str | list[str] = "string"


class Plan(_Strict):
    """A plan as its author wrote it, in Dagwright's own dialect."""

    plan: Annotated[int, Field(ge=1, le=1)] = 1
    title: str | None = None
    metadata: JsonObject = Field(default_factory=dict)
    inputs: dict[Annotated[str, StringConstraints(pattern=r"^\w+$")], Input] = {}
    on_failure: Literal["continue", "fail_fast"] = "continue"
    deadline: Duration | None = None
    nodes: list[Node]
    output: JsonValue = None


NODE_FIELDS = frozenset(Node.model_fields)
PLAN_FIELDS = frozenset(Plan.model_fields)
