"""How the workers here ask a model: data beside the task, an answer by a schema, another try where it is of no use."""

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from dagwright.plugins.models import Action, Message, ModelAnswer, ModelError, ModelFailure, json_line, system, user
from dagwright.tools import GiveUp, context
from dagwright_maritime.attempts import keep, kept

PURPOSE = "worker"
"""Label of the calls, by which scripts and logs tell them from those of the planner."""
MODEL_ATTEMPTS = 3
"""How often a model may give no answer before that ends the call, as for other tools: only the search server is waited
for longer. Attempts that ended before the answer came count, those for which the search server was away do not."""
ASKED_AT_MOST = 4
"""The first answer and three repairs, of all attempts together."""
_UNANSWERED = "The model had not answered when {} attempts ended: their time was over, or their worker died"
QUESTION_CHARACTERS = 8_000
_PROBLEM_CHARACTERS = 1_500

T = TypeVar("T")


class Unusable(ValueError):
    """An answer of a model cannot be used; the message tells the model why."""


class NoUsableAnswer(GiveUp):
    """A model that was told what is wrong did not get it right.

    Args:
        problem: of its last answer.
    """

    def __init__(self, problem: str) -> None:
        super().__init__(f"The model gave no answer that can be used, {ASKED_AT_MOST} times; at last: {problem}")
        self.problem = problem


def data_lines(title: str, items: Iterable[Any]) -> str:
    """Returns data for a model, each on a line of its own as JSON, so that none can end its line and say more."""
    return "\n".join([f"{title}:", *map(json_line, items)])


async def usable_answer(
    task: str,
    data: str,
    *,
    schema: Mapping[str, Any],
    read: Callable[[Any], T],
    judge: Callable[[T], Awaitable[None]] | None = None,
) -> T:
    """Returns what `read` makes of the answer of the model, which is told what is wrong as long as that is `Unusable`.

    Every answer is kept in the heartbeat with how many there were, so that the next attempt does not pay for it again.

    Args:
        task: what the model is to do, in words of ours alone.
        data: what it is to do it with.
        read: raises `Unusable` for an answer that cannot be used.
        judge: asks somebody else whether what was read can be used, such as the search server; raises `Unusable` too.

    Raises:
        NoUsableAnswer: no answer could be used.
        ModelFailure: the model does not answer.
    """
    said: list[Message] = [system(task), user(data)]
    output, problem = kept().answer, "what an earlier attempt was answered did not fit"
    while output is not None or kept().answers < ASKED_AT_MOST:
        written = Message(role="assistant", content=json.dumps(output, ensure_ascii=False))
        try:
            if output is None:
                answer = await _answer(said, schema)
                output, written = answer.output, answer.message
            found = read(output)
            if judge is not None:
                await judge(found)
        except ModelFailure as failure:
            if failure.action is not Action.FIX:
                raise
            problem, written = str(failure), Message(role="assistant", content=failure.partial or "{}")
        except Unusable as wrong:
            problem = str(wrong)
        else:
            return found
        output = None
        said += [written, user(f"That cannot be used. {problem[:_PROBLEM_CHARACTERS]}\nWrite the whole answer again.")]
    raise NoUsableAnswer(problem)


async def _answer(said: Sequence[Message], schema: Mapping[str, Any]) -> ModelAnswer:
    """Asks once and returns the answer.

    Raises:
        ModelFailure: there is none; it is final if it was the last that a call may go without.
    """
    before = kept()
    if before.model_silent >= MODEL_ATTEMPTS:
        raise _final(ModelFailure(ModelError.UNAVAILABLE, _UNANSWERED.format(before.model_silent)))
    # Counted before it is asked: an attempt may end while it waits for the answer.
    silent = before.model_silent + 1
    keep(model_silent=silent)
    try:
        answer = await context().ask_model(said, purpose=PURPOSE, output=schema)
    except ModelFailure as failure:
        if failure.action is Action.FIX:
            keep(answer=None, answers=before.answers + 1, model_silent=before.model_silent)
        elif failure.action is Action.RETRY and silent >= MODEL_ATTEMPTS:
            raise _final(failure) from None
        elif failure.action is Action.RETRY and failure.delay is None:
            # Temporal would wait the longer the more attempts there were, those for which the server was away too.
            failure.delay = timedelta(seconds=2 ** (silent - 1))
        raise
    keep(answer=answer.output, answers=before.answers + 1, model_silent=before.model_silent)
    return answer


def _final(failure: ModelFailure) -> ModelFailure:
    failure.action = Action.GIVE_UP
    return failure


def checked_question(text: str) -> str:
    """Returns a question without blanks around it.

    Raises:
        ValueError: it says nothing, or too much.
    """
    asked = text.strip()
    if not asked:
        raise ValueError("The question is empty; say in 'question' what is asked")
    if len(asked) > QUESTION_CHARACTERS:
        raise ValueError(f"The question has {len(asked):,} characters, over the limit of {QUESTION_CHARACTERS:,}")
    return asked
