"""OpenAPI models of answers in OpenAI's form.

Responses are not validated against these models: answers of the model service are returned unchanged and may have more
fields.
"""

from typing import Literal

from pydantic import BaseModel, Field

from dagwright.interfaces.http.event_models import JsonObject, OpenModel


class ModelObject(OpenModel):
    """A model ID that requests can name."""

    id: str = Field(description="Value of `model` in a request.")
    object: Literal["model"]
    created: int
    owned_by: str = Field(description="`dagwright`, or `service` for a model of the service.")
    dagwright: JsonObject = Field(description="Kind of the model; for a plan, also its title and `input_schema`.")


class ModelList(BaseModel):
    """The models of the service, plans, agents and profiles."""

    object: Literal["list"]
    data: list[ModelObject]


class AnswerMessage(OpenModel):
    """An answer, or questions to a person."""

    role: Literal["assistant"]
    content: str | None = None
    tool_calls: list[JsonObject] | None = Field(
        default=None, description="From a run: a call of `answer_feedback` for each question to a person."
    )


class AnswerChoice(OpenModel):
    """The answer. There is always one choice."""

    index: int
    message: AnswerMessage
    finish_reason: str | None = Field(default=None, description="`tool_calls` if the answer has calls, else `stop`.")


class ChatCompletion(OpenModel):
    """A chat completion. With `stream`, its chunks are sent as events, followed by `[DONE]`."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[AnswerChoice]
    usage: JsonObject | None = None
    dagwright: JsonObject | None = Field(
        default=None,
        description="From a run: `run_id`, `session_id`, `status`, the number of nodes by state, and `error` with code "
        "and message if the run has an answer but is not completed.",
    )


class ResponseObject(OpenModel):
    """A response. With `stream`, it is sent as events."""

    id: str = Field(description="ID of the response. With this ID, a response of a run can be fetched.")
    object: Literal["response"]
    created_at: int
    status: str = Field(description="`in_progress`, `completed`, `failed` or `cancelled`.")
    model: str
    output: list[JsonObject] = Field(description="Messages, and calls of `answer_feedback`.")
    error: JsonObject | None = None
    usage: JsonObject | None = None
    dagwright: JsonObject | None = Field(default=None, description="As in a chat completion.")


class HealthDocument(BaseModel):
    """The gateway responds."""

    status: Literal["ok"]


class ReadinessDocument(BaseModel):
    """The dependencies of the gateway respond."""

    status: Literal["ok"]
    checks: dict[Literal["temporal", "store"], Literal["ok"]]
