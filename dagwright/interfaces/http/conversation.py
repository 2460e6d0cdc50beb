"""Interpret a conversation in OpenAI's form for a run: the request, earlier turns, and answers to questions.

The request of a run is the last user message. Earlier messages are passed to the planner as turns, unless the run
belongs to a session, which has stored turns.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dagwright.interfaces.http.error_codes import ErrorCode
from dagwright.interfaces.http.errors import ApiError
from dagwright.interfaces.http.request_fields import ChatMessage, parse_json
from dagwright.planning.conversation import MAX_TURNS_IN_PROMPT, TurnSummary
from dagwright.protocol.turn_summaries import MAX_OLDER_RESPONSE_BYTES, cut_middle, shorten_responses

ANSWER_FUNCTION = "answer_feedback"
"""The function whose calls represent questions to people."""


@dataclass(frozen=True, slots=True)
class FeedbackAnswer:
    """The result of a call of `answer_feedback`.

    Args:
        call: ID of the call.
        run_id: ID of the run that asked.
        text: the answer as it was sent.
    """

    call: str
    run_id: str
    text: str


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation in the form that a run needs.

    Args:
        text: the last user message; empty if the conversation ends with function results.
        instructions: text of the system and developer messages.
        earlier_turns: earlier turns, oldest first.
        answers: the messages at the end that answer questions of runs.
        has_other_results: whether the messages at the end have results of the client's own functions.
    """

    text: str
    instructions: str = ""
    earlier_turns: Sequence[TurnSummary] = ()
    answers: Sequence[FeedbackAnswer] = ()
    has_other_results: bool = False

    @property
    def prompt(self) -> str:
        """The request, preceded by the instructions."""
        return f"{self.instructions}\n\n{self.text}" if self.instructions else self.text


def conversation_of(messages: Sequence[ChatMessage], *, run_id: str | None = None) -> Conversation:
    """Interpret messages.

    Args:
        run_id: ID of the run that asked the questions, used for function results whose calls are not in the messages.

    Raises:
        ApiError: no run accepts the messages.
    """
    end = len(messages)
    while end and messages[end - 1].role == "tool":
        end -= 1
    results = messages[end:]
    if results:
        calls = _last_calls(messages[:end])
        answers = [answer for result in results if (answer := _answer_of(result, calls, run_id)) is not None]
        return Conversation("", answers=answers, has_other_results=len(answers) < len(results))
    if messages[-1].role != "user":
        raise ApiError(ErrorCode.INVALID_VALUE, "the last message must have the role user or tool", param="messages")
    dialogue = [message for message in messages if message.role in ("user", "assistant")]
    system = [text_of(message) for message in messages if message.role in ("system", "developer")]
    return Conversation(text_of(messages[-1]), "\n\n".join(filter(None, system)), _turns(dialogue[:-1]))


def text_of(message: ChatMessage) -> str:
    """Return the text of a message.

    Raises:
        ApiError: the message has content that is not text.
    """
    if message.content is None or isinstance(message.content, str):
        return message.content or ""
    texts = []
    for part in message.content:
        if part.get("type") not in ("text", "input_text", "output_text") or not isinstance(part.get("text"), str):
            error_text = (
                f"a run accepts text only, not {part.get('type')!r:.40}; use routing_mode direct for other content"
            )
            raise ApiError(ErrorCode.UNSUPPORTED_CONTENT, error_text, param="messages")
        texts.append(part["text"])
    return "\n".join(texts)


def _turns(messages: Sequence[ChatMessage]) -> list[TurnSummary]:
    """Return messages as turns. Consecutive messages of one role are joined, and long messages are cut.

    The limits are the same as for the turns that a session stores (docs/guides/openai-api.md).
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
    newest_pairs = pairs[-MAX_TURNS_IN_PROMPT:]
    answers = shorten_responses(["\n".join(answer_texts) or None for _, answer_texts in newest_pairs])
    return [
        TurnSummary(
            number,
            cut_middle("\n".join(question), max_bytes=MAX_OLDER_RESPONSE_BYTES) or "(nothing)",
            answer or ("(omitted)" if answer_texts else "(no answer)"),
        )
        for number, ((question, answer_texts), answer) in enumerate(zip(newest_pairs, answers, strict=True), start=1)
    ]


def _last_calls(messages: Sequence[ChatMessage]) -> dict[str, Mapping[str, Any]]:
    """Return the function calls of the last assistant message: ID -> function."""
    if not messages or messages[-1].role != "assistant":
        return {}
    calls = {}
    for call in messages[-1].tool_calls or ():
        function = call.get("function")
        if isinstance(call.get("id"), str) and isinstance(function, Mapping):
            calls[call["id"]] = function
    return calls


def _answer_of(
    message: ChatMessage, calls: Mapping[str, Mapping[str, Any]], run_id: str | None
) -> FeedbackAnswer | None:
    call = message.tool_call_id or ""
    function = calls.get(call)
    if function is None:
        return None if run_id is None else FeedbackAnswer(call, run_id, text_of(message))
    if function.get("name") != ANSWER_FUNCTION:
        return None
    try:
        run_id = str(parse_json(function.get("arguments") or "")["run_id"])
    except (ValueError, KeyError, TypeError):
        run_id = ""
    if not (run_id and run_id.isprintable()):
        error_text = "the arguments of the call of answer_feedback were changed; send them back as they were received"
        raise ApiError(ErrorCode.ANSWER_REJECTED, error_text, param="messages")
    return FeedbackAnswer(call, run_id, text_of(message))
