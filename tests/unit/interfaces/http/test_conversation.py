"""The conversation of a request, as text, turns and answers."""

import json
from typing import Any

import pytest

from dagwright.core.expressions.value_refs import encoded_size
from dagwright.interfaces.http.conversation import Conversation, FeedbackAnswer, conversation_of
from dagwright.interfaces.http.errors import ApiError
from dagwright.interfaces.http.request_fields import ChatMessage
from dagwright.planning.conversation import TurnSummary


def parsed_conversation(*messages: Any, run: str | None = None) -> Conversation:
    return conversation_of([ChatMessage.model_validate(message) for message in messages], run=run)


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


def tool_call(call: str, name: str = "answer_feedback", arguments: Any = None) -> dict[str, Any]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {"run_id": "r", "request_id": "check"})
    return {"id": call, "type": "function", "function": {"name": name, "arguments": text}}


def test_request_is_the_last_message_with_the_system_messages() -> None:
    system = [{"role": "system", "content": "Be brief."}, {"role": "developer", "content": "In French."}]
    actual = parsed_conversation(*system, user("Hi."))
    assert (actual.text, actual.prompt) == ("Hi.", "Be brief.\n\nIn French.\n\nHi.")
    assert parsed_conversation(user([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])).text == "a\nb"


def test_earlier_messages_become_turns() -> None:
    actual = parsed_conversation(
        user("a"), user("b"), assistant("c"), assistant(None, tool_calls=[tool_call("1")]), user("d"), user("e")
    )
    assert actual.earlier_turns == [TurnSummary(1, "a\nb", "c"), TurnSummary(2, "d", "(no answer)")]
    greeting = parsed_conversation(assistant("How can I help?"), user("Go."))
    assert greeting.earlier_turns == [TurnSummary(1, "(nothing)", "How can I help?")]


def test_long_conversation_is_cut_as_documented() -> None:
    before = [message for _ in range(40) for message in (user("q" * 9_000), assistant("a" * 9_000))]
    actual = parsed_conversation(*before, user("Go." * 9_000))
    requests = [encoded_size(turn.human_message) for turn in actual.earlier_turns]
    answers = [encoded_size(turn.ai_response) for turn in actual.earlier_turns]
    assert (len(requests), min(requests) > 1_900, max(requests) <= 2_000) == (20, True, True)
    # The last answer has 8,192 bytes, and as many others as fit in 16,000 bytes follow; the rest is marked as omitted.
    assert 8_000 < answers[-1] <= 8_192
    assert all(1_900 < answer <= 2_000 for answer in answers[-4:-1])
    assert {turn.ai_response for turn in actual.earlier_turns[:-4]} == {"(omitted)"}
    assert actual.text == "Go." * 9_000


def result(call: str, content: str = "yes") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call, "content": content}


def test_results_of_answer_feedback_are_answers_and_results_of_other_functions_are_not() -> None:
    question = assistant("Publish?", tool_calls=[tool_call("1"), tool_call("2")])
    actual = parsed_conversation(user("a"), question, result("1"), result("2", "no"))
    assert actual.answers == [FeedbackAnswer("1", "r", "yes"), FeedbackAnswer("2", "r", "no")]
    assert not actual.has_other_results
    actual = parsed_conversation(user("a"), assistant(None, tool_calls=[tool_call("1", "weather")]), result("1"))
    assert (actual.answers, actual.has_other_results) == ([], True)
    # A result without its call answers the run that the request names.
    assert parsed_conversation(result("1"), run="r").answers == [FeedbackAnswer("1", "r", "yes")]
    assert parsed_conversation(result("1")).has_other_results


@pytest.mark.parametrize(
    "messages",
    [
        [assistant("I end it.")],
        [user([{"type": "image_url", "image_url": {"url": "x"}}])],
        *(
            [assistant(None, tool_calls=[tool_call("1", arguments=text)]), result("1")]
            for text in ("{}", "no JSON", '{"run_id": "\\ud800"}')
        ),
    ],
)
def test_invalid_conversation_is_rejected(messages: Any) -> None:
    with pytest.raises(ApiError) as error:
        parsed_conversation(*messages)
    assert (error.value.status, error.value.param) == (400, "messages")
