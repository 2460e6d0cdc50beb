"""Model calls of the worker tools: prompts that separate data from instructions, structured answers, and repairs."""

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from dagwright.plugins.models import Action, Message, ModelError, ModelFailure, ModelResponse, json_line, system, user
from dagwright.tools import GiveUp, context
from dagwright_maritime.attempt_state import load_state, save_state

PURPOSE = "worker"
"""Label of the calls in scripted models and logs, distinct from the label of the planner's calls."""
MAX_MODEL_FAILURES = 3
"""Number of failed model calls after which the tool call fails. A model call during which the attempt ends counts as
failed; an attempt that fails because the search server is unavailable does not count."""
MAX_ANSWERS = 4
"""Maximum number of answers, over all attempts together: the first answer and three repairs."""
_UNANSWERED_MESSAGE = (
    "{} attempts ended before the model answered: the attempts timed out, or their worker processes died"
)
QUESTION_CHARACTERS = 8_000
_PROBLEM_CHARACTERS = 1_500

T = TypeVar("T")


class InvalidAnswer(ValueError):
    """An answer of a model is invalid; the message is sent to the model."""


class NoValidAnswer(GiveUp):
    """The model gave no valid answer after all repairs.

    Args:
        problem: problem with the last answer.
    """

    def __init__(self, problem: str) -> None:
        super().__init__(f"The model gave {MAX_ANSWERS} invalid answers; last problem: {problem}")
        self.problem = problem


def data_lines(title: str, items: Iterable[Any]) -> str:
    """Return data for a model, one JSON value per line, so a value cannot add lines with instructions."""
    return "\n".join([f"{title}:", *map(json_line, items)])


async def request_answer(
    task: str,
    data: str,
    *,
    schema: Mapping[str, Any],
    parse: Callable[[Any], T],
    validate: Callable[[T], Awaitable[None]] | None = None,
) -> T:
    """Return the parsed answer of the model. If `parse` or `validate` rejects an answer, the model repairs the answer.

    Each answer is stored in the heartbeat with the number of answers, so that the next attempt does not pay for the
    answer again.

    Args:
        task: the instructions; must not contain data.
        data: the input data.
        parse: parses an answer; raises `InvalidAnswer` if it is invalid.
        validate: validates the parsed answer with another system, such as the search server; may raise `InvalidAnswer`.

    Raises:
        NoValidAnswer: no answer was valid.
        ModelFailure: a model call failed.
    """
    messages: list[Message] = [system(task), user(data)]
    output, problem = load_state().answer, "the answer to an earlier attempt was invalid"
    while output is not None or load_state().answer_count < MAX_ANSWERS:
        message = Message(role="assistant", content=json.dumps(output, ensure_ascii=False))
        try:
            if output is None:
                response = await _call_model(messages, schema)
                output, message = response.output, response.message
            parsed_answer = parse(output)
            if validate is not None:
                await validate(parsed_answer)
        except ModelFailure as failure:
            if failure.action is not Action.FIX:
                raise
            problem, message = str(failure), Message(role="assistant", content=failure.partial or "{}")
        except InvalidAnswer as invalid:
            problem = str(invalid)
        else:
            return parsed_answer
        output = None
        messages += [message, user(f"Invalid answer. {problem[:_PROBLEM_CHARACTERS]}\nWrite the whole answer again.")]
    raise NoValidAnswer(problem)


async def _call_model(messages: Sequence[Message], schema: Mapping[str, Any]) -> ModelResponse:
    """Call the model once and return its response.

    Raises:
        ModelFailure: the call failed; the failure is final if no attempts are left.
    """
    state = load_state()
    if state.model_failures >= MAX_MODEL_FAILURES:
        raise _make_final(ModelFailure(ModelError.UNAVAILABLE, _UNANSWERED_MESSAGE.format(state.model_failures)))
    # Counted before the call, because the attempt may end during the call.
    failures = state.model_failures + 1
    save_state(model_failures=failures)
    try:
        response = await context().ask_model(messages, purpose=PURPOSE, output=schema)
    except ModelFailure as failure:
        if failure.action is Action.FIX:
            save_state(answer=None, answer_count=state.answer_count + 1, model_failures=state.model_failures)
        elif failure.action is Action.RETRY and failures >= MAX_MODEL_FAILURES:
            raise _make_final(failure) from None
        elif failure.action is Action.RETRY and failure.delay is None:
            # Temporal's backoff would also count the attempts without a search server.
            failure.delay = timedelta(seconds=2 ** (failures - 1))
        raise
    save_state(answer=response.output, answer_count=state.answer_count + 1, model_failures=state.model_failures)
    return response


def _make_final(failure: ModelFailure) -> ModelFailure:
    failure.action = Action.GIVE_UP
    return failure


def validate_question(text: str) -> str:
    """Return a question without surrounding white space.

    Raises:
        ValueError: the question is empty or too long.
    """
    question = text.strip()
    if not question:
        raise ValueError("The question is empty; set 'question'")
    if len(question) > QUESTION_CHARACTERS:
        raise ValueError(f"The question has {len(question):,} characters, over the limit of {QUESTION_CHARACTERS:,}")
    return question
