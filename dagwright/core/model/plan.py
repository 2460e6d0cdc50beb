"""The plan model: plans in every dialect are translated to it (docs/reference/plan.md).

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
from dagwright.core.model.agents import InlineAgent
from dagwright.core.model.times import parse_duration

_RESERVED = {
    "item": "the item of a for_each",
    "index": "the position of an item",
    "inputs": "the inputs of the plan",
    "secret": "secrets",
    "~budget": "requests for more budget",
}
RESERVED_IDS = frozenset(_RESERVED)
"""Names that have a special meaning in references, and ids that the run uses for its own requests."""


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
        reserved_ids = ", ".join(sorted(RESERVED_IDS))
        raise ValueError(f"{value!r} is reserved for {_RESERVED[value]}; an id is any text but {reserved_ids}")
    return value


def _normalize_ids(node_ids: list[str]) -> list[str]:
    if all(map(str.isascii, node_ids)):
        return node_ids
    return [unicodedata.normalize("NFC", node_id) for node_id in node_ids]


def _checked_duration(value: Any) -> Any:
    return parse_duration(value) if isinstance(value, str) else value


NodeId = Annotated[str, BeforeValidator(_checked_id)]
NodeIds = Annotated[list[str], AfterValidator(_normalize_ids)]
"""Ids of other nodes, normalized to NFC but not otherwise checked."""
Duration = Annotated[
    timedelta,
    BeforeValidator(_checked_duration),
    WithJsonSchema({"type": "string", "pattern": r"^[0-9]{1,9}(\.[0-9]{1,3})?(ms|s|m|h|d)$"}),
]
JsonObject = dict[str, Any]
"""A JSON object; the reader of the document has checked that it contains JSON only."""


class _Strict(BaseModel):
    """Base of every part of a plan: unknown keys are rejected, nothing is coerced, all fields are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, arbitrary_types_allowed=False)


class Retry(_Strict):
    """How often and how fast a failed attempt is retried."""

    max_attempts: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Attempts including the first; the default depends on the effects of the tool. Example: `3`"""
    first_delay: Duration | None = None
    """Delay before the second attempt. Example: `1s`"""
    factor: Annotated[float, Field(ge=1, le=1_000)] | None = None
    """Ratio of each delay to the previous delay. Example: `2`"""
    max_delay: Duration | None = None
    """Longest delay between two attempts. Example: `5m`"""


class AtLeast(_Strict):
    """`join: {at_least: k}`: the node starts when k of its dependencies have completed or were skipped."""

    at_least: Annotated[int, Field(ge=1)]
    """Number of dependencies that must have completed or been skipped. Example: `2`"""


class OnErrorValue(_Strict):
    """`on_error: {value: …}`: the node completes with this value when it fails."""

    value: JsonValue
    """The result of the node if its call fails. Example: `[]`"""


class Cache(_Strict):
    """`cache: {ttl: 1h}`: how long the result of an equal call may be reused."""

    ttl: Duration
    """How long a result may be reused. Example: `1h`"""


class OnTimeoutDefault(_Strict):
    """The answer that is used if the deadline passes."""

    default: JsonValue
    """The answer; the `type` of the request defines its form. Example: `{approved: false}`"""


class OnTimeoutEscalate(_Strict):
    """Who gets the request if the deadline passes, and the action if the new deadline passes too."""

    escalate: str
    """The next assignee, with the same deadline. Example: `boss`"""
    then: "Literal['fail'] | OnTimeoutDefault | OnTimeoutEscalate" = "fail"
    """The action at the next deadline. Example: `{default: {approved: false}}`"""


OnTimeout = Literal["fail"] | OnTimeoutDefault | OnTimeoutEscalate


class Human(_Strict):
    """A question to a person."""

    type: Literal["APPROVAL", "SELECTION", "GUIDANCE", "CLARIFICATION", "INFORMATION"] = "APPROVAL"
    """Kind of the request, which sets the form of the answer. Example: `SELECTION`"""
    prompt: str = ""
    """The question; Markdown and references are possible. Example: `Publish {{total.result}}?`"""
    # An attribute `schema` would hide a method of pydantic's models, so attribute and key have different names.
    answer_schema: Annotated[JsonObject | None, Field(alias="schema")] = None
    """JSON Schema of the answer to an INFORMATION. Example: `{properties: {age: {type: integer}}}`"""
    options: list[JsonValue] | str | None = None
    """Options of a SELECTION: a list, or a reference to a result that is a list. Example: `[red, green]`"""
    multiple: bool = False
    """Whether a SELECTION may have several options. Example: `true`"""
    allow_text: bool = False
    """Whether a SELECTION also accepts a text as its answer. Example: `true`"""
    assignee: str | None = None
    """Name of the person who should answer; by default anyone may. Example: `ann`"""
    channel: Literal["any", "inbox"] = "any"
    """Where the answer may come from. `inbox` accepts answers from the command line, the console, the API and the
    Temporal UI, and rejects answers that a model client relays. Example: `inbox`"""
    deadline: Duration | None = None
    """How long the request waits before `on_timeout` applies; by default without a limit. Example: `2d`"""
    reminder: Duration | None = None
    """Interval at which the notification is repeated. Example: `1d`"""
    on_timeout: OnTimeout = "fail"
    """The action at the deadline. Example: `{escalate: boss}`"""


AGENT_NAME, AGENT_INLINE = "name", "inline"
"""Names of the two forms of `agent`, which pydantic adds to the location of an error."""


def _form_of_agent(value: Any) -> str:
    return AGENT_INLINE if isinstance(value, dict | InlineAgent) else AGENT_NAME


AgentOfNode = Annotated[
    Annotated[str, Tag(AGENT_NAME)] | Annotated[InlineAgent, Tag(AGENT_INLINE)], Discriminator(_form_of_agent)
]


class Node(_Strict):
    """One step of a plan: exactly one of `tool | agent | human | plan`."""

    id: NodeId
    """Unique name in the plan, 1 to 200 bytes of UTF-8. Example: `sum`"""
    title: str | None = None
    """Title for people, in place of the ID. Example: `Add the numbers`"""
    tool: str | None = None
    """Name of the tool that the node calls. Example: `calculator`"""
    agent: AgentOfNode | None = None
    """The name of an agent, or an object that defines an inline agent. Example: `writer`"""
    human: Human | None = None
    """A question to a person. Example: `{type: APPROVAL, prompt: Publish it}`"""
    plan: JsonObject | str | None = None
    """A complete plan in any dialect, or the path of a file with a plan. Example: `archive.yaml`"""
    arguments: JsonObject = Field(default_factory=dict)
    """Arguments of the tool, or inputs of the sub-plan; they may have references. Example: `{expression: 1 + 2}`"""
    objective: str | None = None
    """Task of an agent in words; references are possible. Example: `Summarize {{read.result}}`"""
    for_each: str | list[JsonValue] | None = None
    """A list, or a reference to a list: the node runs once per item. Example: `"{{list.result.files}}"`"""
    key: str | None = None
    """Name of an item in the ID of its call, such as `sum[north]`; by default the position of the item: `sum[0]`.
    Example: `"{{item.name}}"`"""
    max_parallel: Annotated[int, Field(ge=1)] | None = None
    """Items of the `for_each` that run at the same time. Example: `5`"""
    when: str | None = None
    """Condition; if it is false, the node is skipped. Example: `sum.result > 10`"""
    join: Literal["all", "any", "all_done"] | AtLeast = "all"
    """Which dependencies must be done before the node starts. Example: `{at_least: 2}`"""
    depends_on: NodeIds = Field(default_factory=list)
    """IDs of nodes to wait for, in addition to the nodes in references. Example: `[sum]`"""
    retry: Retry | None = None
    """How failed attempts are retried. Example: `{max_attempts: 3}`"""
    timeout: Duration | None = None
    """Time limit of one attempt; by default the time limit of the tool. Example: `30s`"""
    heartbeat: Duration | None = None
    """Longest time between two heartbeats of the call, after which the attempt fails. Example: `10s`"""
    on_error: Literal["block", "skip", "ask", "replan"] | OnErrorValue = "block"
    """Consequence of a failure of the node: its dependents are blocked (`block`) or skipped (`skip`), a person decides
    (`ask`), the model that wrote the plan plans again (`replan`), or the node completes with a `value`.
    Example: `{value: []}`"""
    approval: Literal["policy", "required", "never"] | Human = "policy"
    """Whether a person approves the call before it starts. Example: `required`"""
    priority: Annotated[int, Field(ge=1, le=5)] = 3
    """1 is the most urgent, 5 the least. Example: `1`"""
    effects: Literal["idempotent"] | None = None
    """`idempotent`: the call may be repeated. Allowed only if the effects of the tool depend on its arguments, such as
    the effects of `http_request` on `method`. Example: `idempotent`"""
    cache: Literal["off"] | Cache | None = None
    """By default results of `pure` tools are reused, and results of other tools never. Example: `{ttl: 1h}`"""
    metadata: JsonObject = Field(default_factory=dict)
    """Facts for people and programs. Example: `{team: billing}`"""

    @property
    def agent_name(self) -> str | None:
        """Name of the node's agent; `None` without an agent, or with an inline agent that is not checked yet."""
        return self.agent if isinstance(self.agent, str) else None


class Input(BaseModel):
    """The declaration of an input, a value that is given before the run: a JSON Schema of the value, and a prompt."""

    model_config = ConfigDict(extra="allow", frozen=True)

    prompt: str | None = None
    """The question that asks a person for the value. Example: `How many?`"""
    type: str | list[str] = "string"
    """JSON type of the value. Example: `integer`"""


class PlanDocument(_Strict):
    """A plan as its author wrote it, in Dagwright's own dialect."""

    plan: Annotated[int, Field(ge=1, le=1)] = 1
    """Version of the format. Example: `1`"""
    title: str | None = None
    """Title for people. Example: `A small sum`"""
    metadata: JsonObject = Field(default_factory=dict)
    """Facts for people and programs. Example: `{team: billing}`"""
    inputs: dict[Annotated[str, StringConstraints(pattern=r"^\w+$")], Input] = {}
    """Values that are given at the start, by name. Example: `{count: {type: integer}}`"""
    on_failure: Literal["continue", "fail_fast"] = "continue"
    """`fail_fast` ends the run at the first failure; `continue` runs all other branches. Example: `fail_fast`"""
    deadline: Duration | None = None
    """Time limit of the whole run. Example: `2h`"""
    nodes: list[Node]
    """The nodes of the plan in any order. Example: `[{id: sum, tool: calculator, arguments: {expression: 1 + 2}}]`"""
    output: JsonValue = None
    """The output of the run; references are possible. Example: `"{{sum.result}}"`"""


NODE_FIELDS = frozenset(Node.model_fields)
PLAN_FIELDS = frozenset(PlanDocument.model_fields)


def question_of(human: Human) -> dict[str, Any]:
    """Return the compiled form of a human request, without fields at their default."""
    question: dict[str, Any] = {"type": human.type, "prompt": human.prompt}
    parts: dict[str, Any] = {
        "schema": human.answer_schema,
        "options": human.options,
        "multiple": human.multiple or None,
        "allow_text": human.allow_text or None,
        "assignee": human.assignee,
        "channel": None if human.channel == "any" else human.channel,
        "deadline_s": human.deadline.total_seconds() if human.deadline else None,
        "reminder_s": human.reminder.total_seconds() if human.reminder else None,
        "on_timeout": _encoded_on_timeout(human.on_timeout),
    }
    return question | {name: part for name, part in parts.items() if part is not None}


def _encoded_on_timeout(action: OnTimeout) -> dict[str, Any] | None:
    # Defaults are omitted, so the compiled form of a plan does not depend on whether it states `then: fail`.
    return None if isinstance(action, str) else action.model_dump(mode="json", exclude_defaults=True)
