"""OpenAPI models of requests and responses about runs.

Responses are not validated against these models, and may have more fields. Fields that may be null have a default:
FastAPI omits nulls from examples, and an example without a required field would be invalid.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import Body
from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from dagwright.interfaces.http import examples
from dagwright.interfaces.http.event_models import RUN_EVENTS, JsonObject, NodeState, OpenModel, RunError, reference_to
from dagwright.interfaces.http.headers import header_descriptions
from dagwright.protocol.command_messages import MAX_ACTOR_NAME_CHARACTERS, MAX_REASON_CHARACTERS

TagsField = Annotated[JsonObject, WithJsonSchema({"type": "object", "additionalProperties": {"type": "string"}})]
"""This type accepts values of any type, because `run_tags` validates them and reports only the first invalid
value."""
ByField = Annotated[
    str | None,
    Field(
        max_length=MAX_ACTOR_NAME_CHARACTERS,
        description="User name of the actor. Ignored if the request has a key: then the owner of the key is recorded, "
        "or the ID of the key if its owner is `*`.",
    ),
]
NoteField = Annotated[str | None, Field(max_length=MAX_REASON_CHARACTERS)]
"""A reason or a note, at most as long as a run accepts."""


class RunListItem(OpenModel):
    """A run in a list."""

    run_id: str
    status: str
    title: str | None = None
    started_at: str | None = None
    ended_at: str | None = None
    nodes_done: int
    nodes_total: int
    session_id: str | None = Field(default=None, description="The session that the run is a turn of.")
    error: RunError | None = Field(default=None, description="The error of a failed run.")
    tags: dict[str, str] = Field(description="Tags of the run: key -> value.")


class RunList(BaseModel):
    """A page of runs: open runs first, then closed ones."""

    object: str = "list"
    data: list[RunListItem]
    has_more: bool = Field(description="True if there is another page.")
    cursor: str | None = Field(default=None, description="Value of `after` for the next page.")
    ui_url: str | None = Field(
        default=None,
        description="URL of the list of runs in the Temporal UI; null if unknown or without the scope `operate`.",
    )


class RunDocument(OpenModel):
    """A run with its nodes, as in `dagwright status RUN --json`, with further fields."""

    run_id: str
    execution_id: str = Field(description="Temporal's run ID: one execution of the run.")
    status: str
    title: str | None = None
    output: Any
    error: RunError | None = None
    nodes: dict[str, NodeState]
    tags: dict[str, str] = Field(description="Tags of the run: key -> value.")
    waiting_for: list[JsonObject] = Field(description="Open requests for feedback.")
    started_at: str | None = None
    ended_at: str | None = None
    cursor: str = Field(description="Value of `after` to stream the events after this document.")
    session_id: str | None = None
    ui_url: str | None = Field(
        default=None, description="URL of the run in the Temporal UI; null if unknown or without the scope `operate`."
    )


class InputsDocument(BaseModel):
    """The inputs of a run."""

    run_id: str
    input_schema: JsonObject = Field(description="JSON Schema of the inputs.")
    inputs: JsonObject = Field(description="Values by name. A value over 8 KiB is given as a reference.")


class NodeDocument(NodeState):
    """A node or item, as in `dagwright node RUN NODE --json`."""

    node_id: str
    arguments: Any = Field(default=None, description="Arguments of the node's call; null before the node starts.")
    notes: list[JsonObject] | None = None


class GraphDocument(BaseModel):
    """Nodes and edges. An edge leads from a node to a dependent. Nodes of a round (profile `rounds`) have a `group`."""

    run_id: str
    cursor: str
    nodes: list[JsonObject]
    edges: list[list[str]]
    notes: list[JsonObject]


class ExplanationDocument(OpenModel):
    """Why a run or a node is in its state, as in `dagwright explain --json`."""

    run_id: str
    node_id: str | None = None
    message: str
    chain: list[JsonObject]


class SessionListItem(OpenModel):
    """A session in a list."""

    session_id: str
    status: str
    turn_count: int
    last_request: str | None = None


class SessionList(BaseModel):
    """A page of sessions: open sessions first, then closed ones."""

    object: str = "list"
    data: list[SessionListItem]
    has_more: bool = Field(description="True if there is another page.")
    cursor: str | None = Field(default=None, description="Value of `after` for the next page.")


class SessionDocument(OpenModel):
    """A session with its turns and the run of the current turn."""

    session_id: str
    status: str
    turns: list[JsonObject]
    run: RunDocument | None = None


class FeedbackRequestDocument(OpenModel):
    """A request for feedback."""

    request_id: str
    run_id: str
    title: str | None = Field(default=None, description="Title of the plan or sub-plan of the request.")
    node_id: str | None = None
    type: str
    prompt: str | None = None
    assignee: str | None = Field(default=None, description="Current assignee; null if anyone may answer.")
    escalations: list[JsonObject] | None = Field(
        default=None, description="`from`, `to` and `at` of each escalation; absent without escalations."
    )
    answer_schema: JsonObject = Field(description="JSON Schema of `answer`.")


class FeedbackRequestList(BaseModel):
    """Open requests, oldest first."""

    object: str = "list"
    data: list[FeedbackRequestDocument]
    has_more: bool = Field(description="Always false: the list is complete.")
    cursor: str | None = Field(default=None, description="Always null.")


class OmittedRequests(BaseModel):
    """A run, and the number of its requests that a page of the inbox omits."""

    run_id: str
    count: int


class InboxList(BaseModel):
    """A page of the inbox: requests of the most recently started runs, oldest request first."""

    object: str = "list"
    data: list[FeedbackRequestDocument]
    has_more: bool = Field(description="True if there is another page.")
    cursor: str | None = Field(default=None, description="Value of `after` for the next page.")
    omitted: list[OmittedRequests] = Field(
        description="Runs with more requests than the inbox lists; `GET /v1/runs/RUN/feedback` returns all of them."
    )


class AnswerBody(BaseModel):
    """An answer to a request."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"request_id": "check", "answer": {"approved": True}, "by": "ann"}]},
    )

    request_id: str | None = Field(
        default=None, description="ID of the request or of its node; optional if only one request is open."
    )
    answer: Any = Field(
        description="An object that matches `answer_schema`. A string, such as `yes` or an option, is accepted as well."
    )
    all: bool = Field(default=False, description="Whether the answer applies to all open requests of the same node.")
    by: ByField = None
    note: NoteField = None


class CommandBody(BaseModel):
    """Reason and actor of a command."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"reason": "wrong figures", "by": "ann"}]}
    )

    reason: NoteField = None
    by: ByField = None


class CancelNodeBody(CommandBody):
    """A request to cancel a node."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"branch": True}]})

    branch: bool = Field(default=False, description="Whether the dependents of the node are cancelled as well.")


class RetryBody(CommandBody):
    """A request to retry a node."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{}, {"arguments": {"expression": "4 / 2"}}]}
    )

    arguments: JsonObject | None = Field(default=None, description="Replaces the arguments of the node.")


class ResultBody(CommandBody):
    """A request to set the result of a node."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"result": 5, "reason": "manual correction"}]}
    )

    result: Any


class AddNodesBody(CommandBody):
    """A request to add nodes to the plan of an open run."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"nodes": [{"id": "more", "tool": "calculator", "arguments": {"expression": "1 + 1"}}]}]
        },
    )

    nodes: Annotated[list[JsonObject], Field(fail_fast=True)] = Field(min_length=1, description="As in a plan.")


class CommandResponse(BaseModel):
    """The result of a command."""

    run_id: str
    ok: bool
    message: str
    status: str | None = Field(default=None, description="Status of a run that was already stopping or cancelled.")


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

    plan: JsonObject | list[Any] | str = Field(description="A plan in any dialect; a string is parsed as JSON or YAML.")
    dialect: str | None = Field(default=None, description="Dialect of the plan; detected by default.")


class PlanCheck(BaseModel):
    """Result of a plan check."""

    status: str = Field(description="`valid` or `invalid`. An invalid plan has only `status` and `errors`.")
    title: str | None = None
    dialect: str | None = None
    node_count: int | None = None
    edge_count: int | None = None
    critical_path: list[str] | None = Field(default=None, description="Nodes of the longest chain of dependencies.")
    input_schema: JsonObject | None = Field(default=None, description="JSON Schema of the inputs of the plan.")
    notes: list[JsonObject] | None = None
    errors: list[JsonObject] = Field(
        description="All problems. For a plan sent as text, each problem has its `line` if known."
    )


class PublishedPlan(BaseModel):
    """A published plan."""

    name: str
    title: str
    description: str | None = None
    dialect: str
    input_schema: JsonObject = Field(description="JSON Schema of the inputs of the plan.")
    plan: Any = Field(description="The plan as written.")


class RunBody(BaseModel):
    """A request to start a run of a published plan, or of a plan in the body."""

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
    inputs: JsonObject = Field(default_factory=dict, description="Inputs by name. The run asks for missing inputs.")
    deadline: str | None = Field(default=None, description="Maximum duration of the run, such as `90s` or `2h`.")
    policy: JsonObject | None = Field(default=None, description="Which calls need approval.")
    title: str | None = Field(default=None, description="Title in lists if the plan has none.")
    tags: TagsField = Field(
        default_factory=dict, description="At most 20 tags: key -> value. `GET /v1/runs` filters by them."
    )


class StartedRun(BaseModel):
    """A run that was started, or the run that an earlier request with the same `Idempotency-Key` started."""

    run_id: str
    status: str = Field(description="`running` for a new run; otherwise the current state of the run.")
    created: bool


class ForkBody(BaseModel):
    """A request to fork a run: the new run executes only the nodes affected by a change."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"inputs": {"number": 4}, "start": False}]}
    )

    plan: JsonObject | list[Any] | str | None = Field(default=None, description="Replaces the plan of the run.")
    inputs: JsonObject = Field(default_factory=dict, description="The changed inputs.")
    rerun: Annotated[list[str], Field(fail_fast=True)] = Field(
        default_factory=list, description="Nodes and items to execute again."
    )
    start: bool = Field(
        default=False, description="Whether to start the fork; otherwise only its changes are returned."
    )


class ForkDocument(BaseModel):
    """The changes of a fork, and whether it was started."""

    run_id: str = Field(description="ID of the original run.")
    fork_run_id: str = Field(description="ID of the fork.")
    started: bool
    difference: JsonObject = Field(
        description="Results that the fork reuses, and nodes that it executes, each with the reason."
    )


def _body_with_examples(model: type[BaseModel]) -> Any:
    """Return the parameter of an optional body, with the examples that FastAPI omits for optional bodies."""
    return Body(examples=model.model_json_schema()["examples"])


OptionalCommand = Annotated[CommandBody | None, _body_with_examples(CommandBody)]
OptionalCancelNode = Annotated[CancelNodeBody | None, _body_with_examples(CancelNodeBody)]
OptionalRetry = Annotated[RetryBody | None, _body_with_examples(RetryBody)]


def created_docs(model: type[BaseModel], example: Mapping[str, Any]) -> dict[int | str, JsonObject]:
    """Describe a response that is 201 with `Location` for a new run, and 200 otherwise."""
    docs = response_docs(model, example)
    return {**docs, 201: {**docs[200], "headers": header_descriptions("Location")}}


def response_docs(
    model: type[BaseModel],
    example: Mapping[str, Any],
    *,
    events: tuple[str, type[BaseModel]] | None = None,
    headers: Mapping[str, JsonObject] | None = None,
) -> dict[int | str, JsonObject]:
    """Return the OpenAPI description of a response.

    Args:
        events: example and event model of the same response as a stream, if it can be streamed.
        headers: descriptions of the headers of the response.
    """
    content: JsonObject = {"application/json": {"example": dict(example)}}
    if events is not None:
        content |= stream_docs(events[0], data=events[1])
    header_docs = {} if headers is None else {"headers": dict(headers)}
    return {200: {"model": model, "description": str(model.__doc__).strip(), "content": content, **header_docs}}


def stream_docs(example: str, *, data: type[BaseModel] | Mapping[str, type[BaseModel]]) -> JsonObject:
    """Return the OpenAPI content of server-sent events.

    Args:
        data: the model of the data of all events, or event type -> model.
    """
    if isinstance(data, Mapping):
        item: JsonObject = {"oneOf": [_event_schema(model, event_type=name) for name, model in data.items()]}
    else:
        item = _event_schema(data, event_type=None)
    # OpenAPI 3.2 describes each event with `itemSchema`; earlier versions can only describe the whole stream.
    return {"text/event-stream": {"itemSchema": item, "example": example}}


def _event_schema(model: type[BaseModel], *, event_type: str | None) -> JsonObject:
    json_text: JsonObject = {"contentMediaType": "application/json", "contentSchema": reference_to(model)}
    # Streams without event types end with [DONE], as OpenAI's do.
    data = json_text if event_type is not None else {"anyOf": [json_text, {"const": "[DONE]"}]}
    properties = {
        "id": {"type": "string"},
        "event": {"type": "string", **({} if event_type is None else {"const": event_type})},
        "data": {"type": "string", **data},
    }
    required = ["data"] if event_type is None else ["event", "data"]
    return {"type": "object", "properties": properties, "required": required}


EVENT_STREAM_DOCS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Server-sent events: `node.STATE` for a changed node, `run.STATE` for a changed run.",
        "content": stream_docs(examples.EVENTS, data=RUN_EVENTS),
        "headers": header_descriptions("X-Run-Id"),
    },
    204: {"description": "The client has already received the last event."},
}
