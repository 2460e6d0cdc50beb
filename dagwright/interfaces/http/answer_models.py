"""What answers in OpenAI's form hold, for the document of the API and for its readers.

Answers are not checked against these: those of the model itself are handed back as they are, and may hold more.
"""

from typing import Literal

from pydantic import BaseModel, Field

from dagwright.interfaces.http.run_models import JsonObject, Told


class ModelLine(Told):
    """Something that can be asked."""

    id: str = Field(description="What a request names as `model`.")
    object: Literal["model"]
    created: int
    owned_by: str = Field(description="`dagwright`, or `service` of a model of the service.")
    dagwright: JsonObject = Field(description="Its kind; of a plan its title and the JSON Schema of its inputs.")


class ModelList(BaseModel):
    """Models of the service, and plans, agents and profiles as models."""

    object: Literal["list"]
    data: list[ModelLine]


class AnswerMessage(Told):
    """An answer, or what is asked of a person instead."""

    role: Literal["assistant"]
    content: str | None = None
    tool_calls: list[JsonObject] | None = Field(
        default=None, description="Of a run: a call of `answer_feedback` for each question to a person."
    )


class AnswerChoice(Told):
    """One answer; there is one."""

    index: int
    message: AnswerMessage
    finish_reason: str | None = Field(default=None, description="`stop`, or `tool_calls` if something is asked.")


class Completion(Told):
    """A chat completion; with `stream` its parts come as events, the last one of which is `[DONE]`."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[AnswerChoice]
    usage: JsonObject | None = None
    dagwright: JsonObject | None = Field(
        default=None,
        description="Of a run: `run_id`, `session_id`, `status`, how many nodes are in which state, and `error` with "
        "code and message if it has an answer and is not completed.",
    )


class ResponseAnswer(Told):
    """A response; with `stream` its parts come as events."""

    id: str = Field(description="Fetch it by that, if a run gives it.")
    object: Literal["response"]
    created_at: int
    status: str = Field(description="`in_progress`, `completed`, `failed` or `cancelled`.")
    model: str
    output: list[JsonObject] = Field(description="Messages, and calls of `answer_feedback`.")
    error: JsonObject | None = None
    usage: JsonObject | None = None
    dagwright: JsonObject | None = Field(default=None, description="As in a chat completion.")


class Health(BaseModel):
    """The gateway responds."""

    status: Literal["ok"]


class Ready(BaseModel):
    """What the gateway needs responds."""

    status: Literal["ok"]
    checks: dict[Literal["temporal", "store"], Literal["ok"]]
