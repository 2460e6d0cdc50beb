"""The conversation of a request, as text, turns and answers."""

import json
from typing import Any

import pytest

from dagwright.core.expressions.value_refs import encoded_size
from dagwright.interfaces.http.conversation import Conversation, FeedbackAnswer, conversation_of
from dagwright.interfaces.http.errors import ApiError
from dagwright.interfaces.http.request_fields import ChatMessage
from dagwright.planning.conversation import TurnSummary


def parsed_conversation(*messages: Any, run_id: str | None = None) -> Conversation:
    return conversation_of([ChatMessage.model_validate(message) for message in messages], run_id=run_id)


def user_message(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant_message(content: Any, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **fields}


def tool_call(call_id: str, name: str = "answer_feedback", arguments: Any = None) -> dict[str, Any]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {"run_id": "r", "request_id": "check"})
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}


def test_prompt_is_the_system_messages_and_the_last_message() -> None:
    system = [{"role": "system", "content": "Be brief."}, {"role": "developer", "content": "In French."}]
    conversation = parsed_conversation(*system, user_message("Hi."))
    assert (conversation.text, conversation.prompt) == ("Hi.", "Be brief.\n\nIn French.\n\nHi.")
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert parsed_conversation(user_message(parts)).text == "a\nb"


def test_earlier_messages_become_turns() -> None:
    messages = [user_message("a"), user_message("b"), assistant_message("c")]
    messages += [assistant_message(None, tool_calls=[tool_call("1")]), user_message("d"), user_message("e")]
    conversation = parsed_conversation(*messages)
    assert conversation.earlier_turns == [TurnSummary(1, "a\nb", "c"), TurnSummary(2, "d", "(no answer)")]
    conversation_after_greeting = parsed_conversation(assistant_message("How can I help?"), user_message("Go."))
    assert conversation_after_greeting.earlier_turns == [TurnSummary(1, "(nothing)", "How can I help?")]


def test_long_conversation_is_truncated_to_the_documented_sizes() -> None:
    earlier_messages = [user_message("q" * 9_000), assistant_message("a" * 9_000)] * 40
    conversation = parsed_conversation(*earlier_messages, user_message("Go." * 9_000))
    request_sizes = [encoded_size(turn.human_message) for turn in conversation.earlier_turns]
    answer_sizes = [encoded_size(turn.ai_response) for turn in conversation.earlier_turns]
    assert (len(request_sizes), min(request_sizes) > 1_900, max(request_sizes) <= 2_000) == (20, True, True)
    # The last answer keeps 8,192 bytes. The answers before it keep 2,000 bytes each, up to 16,000 bytes in total.
    assert 8_000 < answer_sizes[-1] <= 8_192
    assert all(1_900 < size <= 2_000 for size in answer_sizes[-4:-1])
    assert {turn.ai_response for turn in conversation.earlier_turns[:-4]} == {"(omitted)"}
    assert conversation.text == "Go." * 9_000


def tool_result(call_id: str, content: str = "yes") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def test_results_of_answer_feedback_are_answers_and_results_of_other_functions_are_not() -> None:
    question = assistant_message("Publish?", tool_calls=[tool_call("1"), tool_call("2")])
    conversation = parsed_conversation(user_message("a"), question, tool_result("1"), tool_result("2", "no"))
    assert conversation.answers == [FeedbackAnswer("1", "r", "yes"), FeedbackAnswer("2", "r", "no")]
    assert not conversation.has_other_results
    weather_call = assistant_message(None, tool_calls=[tool_call("1", "weather")])
    conversation = parsed_conversation(user_message("a"), weather_call, tool_result("1"))
    assert (conversation.answers, conversation.has_other_results) == ([], True)
    # Without its call, a result is an answer to the run that the HTTP request names.
    assert parsed_conversation(tool_result("1"), run_id="r").answers == [FeedbackAnswer("1", "r", "yes")]
    assert parsed_conversation(tool_result("1")).has_other_results


@pytest.mark.parametrize(
    "messages",
    [
        [assistant_message("I end it.")],
        [user_message([{"type": "image_url", "image_url": {"url": "x"}}])],
        *(
            [assistant_message(None, tool_calls=[tool_call("1", arguments=text)]), tool_result("1")]
            for text in ("{}", "no JSON", '{"run_id": "\\ud800"}')
        ),
    ],
)
def test_invalid_conversation_is_rejected(messages: Any) -> None:
    with pytest.raises(ApiError) as error:
        parsed_conversation(*messages)
    assert (error.value.status, error.value.param) == (400, "messages")
