"""OpenAPI models of nodes and stream events."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import models_json_schema

from dagwright.core.model.states import NodeStatus, RunStatus

JsonObject = dict[str, Any]
REF_TEMPLATE = "#/components/schemas/{model}"


class OpenModel(BaseModel):
    """A document that may have more fields than the model."""

    model_config = ConfigDict(extra="allow")


class RunError(OpenModel):
    """Why a run failed."""

    code: str = Field(description="For example `node_failed`, `deadline_exceeded` or `max_rounds`.")
    message: str
    node_id: str | None = Field(default=None, description="The node that failed, if any.")


class NodeFailure(OpenModel):
    """Why a node failed."""

    code: str
    message: str
    retryable: bool | None = None


class NodeState(OpenModel):
    """A node in the document of a run."""

    status: NodeStatus
    title: str | None = None
    tool: str | None = Field(
        default=None, description="Null if the result comes from a person, a sub-plan or the run itself."
    )
    attempts: int = Field(description="Number of attempts.")
    result: Any = Field(default=None, description="By reference if over 8 KiB.")
    error: NodeFailure | None = None
    reason: str | None = Field(default=None, description="Why the node waits, or was skipped or blocked.")
    started_at: str | None = None
    ended_at: str | None = None
    items: JsonObject | None = Field(default=None, description="Items of a node with `for_each`.")
    lineage: JsonObject | None = Field(default=None, description="Where the result comes from.")
    usage: JsonObject | None = Field(default=None, description="Tokens and cost of the model calls of the node.")


class NodeEventDocument(OpenModel):
    """Event `node.STATE`: a node or item changed its state. The event of the state `running` is `node.started`."""

    run_id: str
    node_id: str
    status: NodeStatus
    attempts: int
    title: str | None = None
    tool: str | None = None
    reason: str | None = None
    started_at: str | None = None
    ended_at: str | None = None
    error: NodeFailure | None = None


class RunEventDocument(OpenModel):
    """Event `run.running` or `run.waiting`: the current state of the run."""

    run_id: str
    status: RunStatus
    title: str | None = None
    node_counts: dict[str, int] = Field(description="State -> number of nodes.")
    waiting_for: list[JsonObject] = Field(description="Open requests: `request_id`, `type` and `prompt`.")
    notes: list[JsonObject]


class RunEndEvent(RunEventDocument):
    """Event `run.completed`, `run.failed` or `run.cancelled`: how the run ended."""

    error: RunError | None = None
    output: Any = Field(default=None, description="By reference if over 8 KiB.")


class OrchestrationEvent(BaseModel):
    """An event of `/v1/orchestration`."""

    type: Literal["node_started", "node_completed", "node_failed", "human_feedback_requested", "cancelled"]
    node_id: str | None
    data: JsonObject | None = None


class ErrorEvent(OpenModel):
    """Event `error`: the stream failed; reconnect with the last event ID."""

    error: JsonObject


class ProgressEvent(BaseModel):
    """An event of a run, in the field `dagwright.events` of a stream in OpenAI's form."""

    type: str = Field(description="`node.` or `run.` and a state, or `feedback.requested`.")
    node_id: str | None = None
    run_id: str
    data: JsonObject


class CompletionChunk(OpenModel):
    """A chunk of a chat completion."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[JsonObject]
    usage: JsonObject | None = None
    dagwright: JsonObject | None = Field(
        default=None,
        description="`events`: progress events. In the chunk with `finish_reason`: the run, as in a completion.",
    )


class ResponseEvent(OpenModel):
    """An event of a response."""

    type: str = Field(description="As in OpenAI's Responses API.")
    sequence_number: int
    dagwright: JsonObject | None = Field(default=None, description="`events`: progress events.")


RUN_EVENTS: Mapping[str, type[BaseModel]] = {
    **{f"node.{status.value}": NodeEventDocument for status in NodeStatus if status is not NodeStatus.RUNNING},
    "node.started": NodeEventDocument,
    "run.running": RunEventDocument,
    "run.waiting": RunEventDocument,
    "run.completed": RunEndEvent,
    "run.failed": RunEndEvent,
    "run.cancelled": RunEndEvent,
    "error": ErrorEvent,
}
"""Event type of a run -> model of its data."""
ORCHESTRATION_EVENTS: Mapping[str, type[BaseModel]] = {
    "node_started": OrchestrationEvent,
    "node_completed": OrchestrationEvent,
    "node_failed": OrchestrationEvent,
    "human_feedback_requested": OrchestrationEvent,
    "cancelled": OrchestrationEvent,
    "error": ErrorEvent,
}
"""Event type of `/v1/orchestration` -> model of its data."""
_STREAM_MODELS: Sequence[type[BaseModel]] = (
    NodeEventDocument,
    RunEventDocument,
    RunEndEvent,
    OrchestrationEvent,
    ErrorEvent,
    ProgressEvent,
    CompletionChunk,
    ResponseEvent,
)


def event_schemas() -> JsonObject:
    """Return the schemas of models that only streams reference: name -> JSON Schema."""
    _, definitions = models_json_schema(
        [(model, "serialization") for model in _STREAM_MODELS], ref_template=REF_TEMPLATE
    )
    schemas: JsonObject = definitions["$defs"]
    return schemas


def reference_to(model: type[BaseModel]) -> JsonObject:
    """Return a reference to the schema of a model."""
    return {"$ref": REF_TEMPLATE.format(model=model.__name__)}
