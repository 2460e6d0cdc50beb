"""What requests and answers about runs hold, for the document of the API and for its readers.

Answers are not checked against these: the documents are those of the command line, of which
only what a client needs first is named here. What may be null has a default: FastAPI leaves nulls out of examples.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import Body
from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from dagwright.interfaces.http.event_models import NodeFacts, RunError, reference_to
from dagwright.interfaces.http.headers import header_descriptions
from dagwright.protocol.command_messages import NAME_CHARACTERS, WORDS_CHARACTERS

JsonObject = dict[str, Any]
MetadataField = Annotated[JsonObject, WithJsonSchema({"type": "object", "additionalProperties": {"type": "string"}})]
"""`metadata_of` reports the first entry that is invalid."""
ByField = Annotated[
    str | None,
    Field(max_length=NAME_CHARACTERS, description="Who does it; with a key it is its owner; of one of `*`, its id."),
]
WordsField = Annotated[str | None, Field(max_length=WORDS_CHARACTERS)]
"""A reason or a note, as long as the run accepts it."""


class Told(BaseModel):
    """A document that has more fields than are named."""

    model_config = ConfigDict(extra="allow")


class RunLine(Told):
    """A run in a list."""

    run_id: str
    status: str
    title: str | None = None
    started_at: str | None = None
    ended_at: str | None = None
    nodes_done: int
    nodes_total: int
    session_id: str | None = Field(default=None, description="The session whose turn it is.")
    error: RunError | None = Field(default=None, description="Of a failed run.")
    metadata: dict[str, str] = Field(description="As the caller gave it.")


class RunList(BaseModel):
    """Runs: those that go on first, then those that have ended."""

    object: str = "list"
    data: list[RunLine]
    has_more: bool = Field(description="Whether a page follows.")
    next: str | None = Field(default=None, description="Send it as `cursor` for the page that follows.")
    ui_url: str | None = Field(
        default=None,
        description="The page of all runs in the Temporal UI, for keys with the scope `operate`, if it is known.",
    )


class RunDocument(Told):
    """A run with its nodes; what `dagwright status RUN --json` tells, with the names of the API."""

    run_id: str
    execution_id: str = Field(description="What Temporal calls the run id: one execution of the run.")
    status: str
    title: str | None = None
    output: Any
    error: RunError | None = None
    nodes: dict[str, NodeFacts]
    metadata: dict[str, str] = Field(description="As the caller gave it.")
    waiting_for: list[JsonObject] = Field(description="What it asks of people.")
    started_at: str | None = None
    ended_at: str | None = None
    offset: str = Field(description="Send it as `after` of the events, to be told what happens from here on.")
    session_id: str | None = None
    ui_url: str | None = Field(
        default=None, description="Its page in the Temporal UI, for keys with the scope `operate`, if it is known."
    )


class InputsDocument(BaseModel):
    """What a run was started with."""

    run_id: str
    inputs_schema: JsonObject = Field(alias="schema", description="JSON Schema of its inputs.")
    inputs: JsonObject = Field(description="Values by name; those over 8 KiB by reference.")


class NodeDocument(NodeFacts):
    """A node or an item; what `dagwright node RUN NODE --json` tells, with the names of the API."""

    id: str
    arguments: Any = Field(default=None, description="What its call is given; null before it begins.")
    notes: list[JsonObject] | None = None


class GraphDocument(BaseModel):
    """Nodes and edges; an edge leads from a node to one that waits for it, and a node of a round has its `group`."""

    run_id: str
    offset: str
    nodes: list[JsonObject]
    edges: list[list[str]]
    notes: list[JsonObject]


class WhyDocument(Told):
    """Why a run or a node is where it is; what `dagwright why --json` tells, with the names of the API."""

    run_id: str
    node: str | None = None
    message: str
    chain: list[JsonObject]


class SessionLine(Told):
    """A session in a list."""

    session_id: str
    status: str
    turns: int
    last_request: str | None = None


class SessionList(BaseModel):
    """Sessions: those that take turns first, then those that have ended."""

    object: str = "list"
    data: list[SessionLine]
    has_more: bool = Field(description="Whether there are more than `limit`.")


class SessionDocument(Told):
    """A session with its turns and, if one runs, the run of that."""

    session_id: str
    status: str
    turns: list[JsonObject]
    run: RunDocument | None = None


class AskedRequest(Told):
    """Something that a run asks of people."""

    id: str
    run_id: str
    title: str | None = Field(default=None, description="Of the plan that asks; of a sub-plan its own.")
    node: str | None = None
    type: str
    prompt: str | None = None
    assignee: str | None = Field(default=None, description="Who is asked now; anyone if it is null.")
    escalations: list[JsonObject] | None = Field(
        default=None, description="`from`, `to` and `at` of each escalation; absent if there was none."
    )
    answer_schema: JsonObject = Field(description="JSON Schema of `answer`.")


class Requests(BaseModel):
    """What is asked now, the oldest first."""

    object: str = "list"
    data: list[AskedRequest]
    has_more: bool = Field(description="Always false: all are listed.")


class AnswerBody(BaseModel):
    """An answer to a request."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"request": "check", "answer": {"approved": True}, "by": "ann"}]},
    )

    request: str | None = Field(
        default=None, description="Its id, or the id of its node; may be left out if one alone is open."
    )
    answer: Any = Field(description="As the schema of the request wants it; `yes`, an option or a text do as well.")
    all: bool = Field(default=False, description="Whether the answer is for all open requests of the same node.")
    by: ByField = None
    note: WordsField = None


class ActBody(BaseModel):
    """Why something is done, and who does it."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"reason": "wrong figures", "by": "ann"}]}
    )

    reason: WordsField = None
    by: ByField = None


class CancelNodeBody(ActBody):
    """Stops a node."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"branch": True}]})

    branch: bool = Field(default=False, description="Whether what needs it is stopped as well.")


class RetryBody(ActBody):
    """Has a node tried again."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{}, {"arguments": {"expression": "4 / 2"}}]}
    )

    arguments: JsonObject | None = Field(default=None, description="In place of those of the node.")


class ResultBody(ActBody):
    """Gives a node its result."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"result": 5, "reason": "by hand"}]})

    result: Any


class AppendBody(ActBody):
    """Adds nodes to the plan of a run that goes on."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"nodes": [{"id": "more", "tool": "calculator", "arguments": {"expression": "1 + 1"}}]}]
        },
    )

    nodes: Annotated[list[JsonObject], Field(fail_fast=True)] = Field(min_length=1, description="As in a plan.")


class Done(BaseModel):
    """What became of an act."""

    run_id: str
    ok: bool
    message: str
    status: str | None = Field(default=None, description="State of a run that was cancelled before.")


class PlanBody(BaseModel):
    """A plan."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "plan": {
                        "plan": 1,
                        "nodes": [{"id": "sum", "tool": "calculator", "arguments": {"expression": "1 + 2"}}],
                    }
                }
            ]
        },
    )

    plan: JsonObject | list[Any] | str = Field(description="A plan in any dialect; a text is JSON or YAML.")
    dialect: str | None = Field(default=None, description="Recognised if left out.")


class CheckedPlan(BaseModel):
    """Whether a plan can run."""

    status: str = Field(description="`valid` or `invalid`.")
    dialect: str | None = None
    title: str | None = None
    inputs: JsonObject | None = Field(default=None, description="JSON Schema of its inputs.")
    nodes: int
    errors: list[JsonObject] = Field(description="Everything that is wrong; of a text with its `line`, if it has one.")


class PublishedPlan(BaseModel):
    """A plan that can be started by name."""

    name: str
    title: str
    description: str | None = None
    dialect: str
    inputs: JsonObject = Field(description="JSON Schema of its inputs.")
    plan: Any = Field(description="As it was written.")


class RunBody(BaseModel):
    """Starts a plan: one that is published by name, or one that stands in the request."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "plan": {
                        "plan": 1,
                        "inputs": {"number": {"type": "integer"}},
                        "nodes": [
                            {
                                "id": "double",
                                "tool": "calculator",
                                "arguments": {"expression": "{{PLACEHOLDER_number}} * 2"},
                            }
                        ],
                        "output": "{{double.result}}",
                    },
                    "inputs": {"number": 21},
                }
            ]
        },
    )

    template: str | None = Field(default=None, description="Name of a published plan.")
    plan: JsonObject | list[Any] | str | None = Field(default=None, description="A plan in any dialect.")
    dialect: str | None = None
    inputs: JsonObject = Field(default_factory=dict, description="The run asks for those that are missing.")
    deadline: str | None = Field(default=None, description="How long the whole run may take, such as `90s` or `2h`.")
    policy: JsonObject | None = Field(default=None, description="Which calls a person is asked about.")
    title: str | None = Field(default=None, description="What lists call it if the plan has no title.")
    metadata: MetadataField = Field(
        default_factory=dict, description="Names and values by which `GET /v1/runs` filters; at most 20."
    )


class StartedRun(BaseModel):
    """A run that was started, or the one that the same `Idempotency-Key` had started before."""

    run_id: str
    status: str = Field(description="`running` of one that is new; else the state that it has now.")
    is_new: bool


class ForkBody(BaseModel):
    """Makes a new run from another one, which does only what the change reaches."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"inputs": {"number": 4}, "start": False}]}
    )

    plan: JsonObject | list[Any] | str | None = Field(default=None, description="In place of that of the run.")
    inputs: JsonObject = Field(default_factory=dict, description="Those that are others than in the run.")
    rerun: Annotated[list[str], Field(fail_fast=True)] = Field(
        default_factory=list, description="Nodes and items to do again."
    )
    start: bool = Field(default=False, description="Whether it is started, and not only shown.")


class ForkDocument(BaseModel):
    """What a fork does, and its run if it was started."""

    run_id: str = Field(description="The run that is forked.")
    fork: str = Field(description="The id of the fork.")
    is_started: bool
    difference: JsonObject = Field(description="What it takes over, what it does and why.")


def _shown_by(model: type[BaseModel]) -> Any:
    """Returns what shows the examples of a body that may be left out: its schema only refers to that of the model."""
    return Body(examples=model.model_json_schema()["examples"])


OptionalAct = Annotated[ActBody | None, _shown_by(ActBody)]
OptionalCancelNode = Annotated[CancelNodeBody | None, _shown_by(CancelNodeBody)]
OptionalRetry = Annotated[RetryBody | None, _shown_by(RetryBody)]


def created(model: type[BaseModel], example: Mapping[str, Any]) -> dict[int | str, JsonObject]:
    """Describe a response that is 201 with `Location` for a new run, and 200 otherwise."""
    found = answered(model, example)
    return {**found, 201: {**found[200], "headers": header_descriptions("Location")}}


def answered(
    model: type[BaseModel],
    example: Mapping[str, Any],
    *,
    events: tuple[str, type[BaseModel]] | None = None,
    headers: Mapping[str, JsonObject] | None = None,
) -> dict[int | str, JsonObject]:
    """Returns how an answer is described.

    Args:
        events: an example of the same as a stream, where it may be asked for as one, with the schema of its events.
        headers: that it has, as they are described.
    """
    content: JsonObject = {"application/json": {"example": dict(example)}}
    if events is not None:
        content |= streamed(events[0], data=events[1])
    named = {} if headers is None else {"headers": dict(headers)}
    return {200: {"model": model, "description": str(model.__doc__).strip(), "content": content, **named}}


def streamed(example: str, *, data: type[BaseModel] | Mapping[str, type[BaseModel]]) -> JsonObject:
    """Returns how server-sent events are described.

    Args:
        data: the schema of their data; of events with types, that of each type.
    """
    if isinstance(data, Mapping):
        item: JsonObject = {"oneOf": [_event_of(model, kind=kind) for kind, model in data.items()]}
    else:
        item = _event_of(data, kind=None)
    # Of each event, as OpenAPI 3.2 has it; before that there is a word for the whole stream alone.
    return {"text/event-stream": {"itemSchema": item, "example": example}}


def _event_of(model: type[BaseModel], *, kind: str | None) -> JsonObject:
    text: JsonObject = {"contentMediaType": "application/json", "contentSchema": reference_to(model)}
    facts = {
        "id": {"type": "string"},
        "event": {"type": "string", **({} if kind is None else {"const": kind})},
        # Streams without types end as OpenAI's do.
        "data": {"type": "string", **(text if kind is not None else {"anyOf": [text, {"const": "[DONE]"}]})},
    }
    return {"type": "object", "properties": facts, "required": ["data"] if kind is None else ["event", "data"]}
