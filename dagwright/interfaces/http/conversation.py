"""What a conversation in OpenAI's form means for a run: the request now, what was said before, answers to questions.

Pure. A run is asked what the last message of the user says. What stands before it is told to the planner as turns,
unless the session knows turns of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dagwright.interfaces.http.bodies import ChatMessage, json_of
from dagwright.interfaces.http.errors import ApiError
from dagwright.planning.conversation import TURNS_TOLD, TurnSummary
from dagwright.protocol.turn_summaries import OLDER_RESPONSE_BYTES, cut_inside, shortened

ANSWER_FUNCTION = "answer_feedback"
"""The function that stands for a question to a person."""
UNSUPPORTED = "unsupported_content"
"""Code of what is refused since a run takes text alone."""


@dataclass(frozen=True, slots=True)
class GivenAnswer:
    """The result of a call of `answer_feedback`.

    Args:
        call: id of the call.
        run: that asks.
        text: the answer, as it was sent.
    """

    call: str
    run: str
    text: str


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation as a run takes it.

    Args:
        text: what the user said last; empty if it ends with answers.
        instructions: what the system and developer messages say.
        said_before: oldest first.
        answers: of the messages at the end, those that answer questions of runs.
        other_tools: whether it ends with results of functions that are not ours.
    """

    text: str
    instructions: str = ""
    said_before: Sequence[TurnSummary] = ()
    answers: Sequence[GivenAnswer] = ()
    other_tools: bool = False

    @property
    def words(self) -> str:
        """Returns the request in words, with what the system says before it."""
        return f"{self.instructions}\n\n{self.text}" if self.instructions else self.text


def conversation_of(messages: Sequence[ChatMessage], *, run: str | None = None) -> Conversation:
    """Returns what messages mean.

    Args:
        run: that asked what results of functions answer whose calls are not among the messages.

    Raises:
        ApiError: no run can take them.
    """
    end = len(messages)
    while end and messages[end - 1].role == "tool":
        end -= 1
    results = messages[end:]
    if results:
        calls = _calls_before(messages[:end])
        answers = [answer for each in results if (answer := _answer_of(each, calls, run)) is not None]
        return Conversation("", answers=answers, other_tools=len(answers) < len(results))
    if messages[-1].role != "user":
        raise ApiError(400, "the last message must be one of the user, or the result of a tool", param="messages")
    said = [each for each in messages if each.role in ("user", "assistant")]
    system = [text_of(each) for each in messages if each.role in ("system", "developer")]
    return Conversation(text_of(messages[-1]), "\n\n".join(filter(None, system)), _turns(said[:-1]))


def text_of(message: ChatMessage) -> str:
    """Returns the text of a message.

    Raises:
        ApiError: there is something else in it.
    """
    if message.content is None or isinstance(message.content, str):
        return message.content or ""
    texts = []
    for part in message.content:
        if part.get("type") not in ("text", "input_text", "output_text") or not isinstance(part.get("text"), str):
            words = f"a run takes text only, not {part.get('type')!r:.40}; send that with routing_mode direct"
            raise ApiError(400, words, param="messages", code=UNSUPPORTED)
        texts.append(part["text"])
    return "\n".join(texts)


def _turns(messages: Sequence[ChatMessage]) -> list[TurnSummary]:
    """Returns what was said, as turns: of several messages of one side in a row the texts together.

    Of long ones as much as a session keeps, which docs/gateway.md says.
    """
    pairs: list[tuple[list[str], list[str]]] = []
    for message in messages:
        if message.role == "user":
            if not pairs or pairs[-1][1]:
                pairs.append(([], []))
            pairs[-1][0].append(text_of(message))
        elif (text := text_of(message)).strip():
            if not pairs:
                pairs.append(([], []))
            pairs[-1][1].append(text)
    kept = pairs[-TURNS_TOLD:]
    answers = shortened(["\n".join(said) or None for _, said in kept])
    return [
        TurnSummary(
            number,
            cut_inside("\n".join(asked), max_bytes=OLDER_RESPONSE_BYTES) or "(nothing)",
            answer or ("(left out)" if said else "(no answer)"),
        )
        for number, ((asked, said), answer) in enumerate(zip(kept, answers, strict=True), start=1)
    ]


def _calls_before(messages: Sequence[ChatMessage]) -> dict[str, Mapping[str, Any]]:
    """Returns the function calls of the last message of an assistant: id -> function."""
    if not messages or messages[-1].role != "assistant":
        return {}
    found = {}
    for call in messages[-1].tool_calls or ():
        function = call.get("function")
        if isinstance(call.get("id"), str) and isinstance(function, Mapping):
            found[call["id"]] = function
    return found


def _answer_of(message: ChatMessage, calls: Mapping[str, Mapping[str, Any]], run: str | None) -> GivenAnswer | None:
    call = message.tool_call_id or ""
    function = calls.get(call)
    if function is None:
        return None if run is None else GivenAnswer(call, run, text_of(message))
    if function.get("name") != ANSWER_FUNCTION:
        return None
    try:
        asking = str(json_of(function.get("arguments") or "")["run_id"])
    except (ValueError, KeyError, TypeError):
        asking = ""
    if not (asking and asking.isprintable()):
        words = "the arguments of the call of answer_feedback are not those that were sent; send them back unchanged"
        raise ApiError(400, words, param="messages", code="answer_refused")
    return GivenAnswer(call, asking, text_of(message))
