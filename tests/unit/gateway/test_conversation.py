"""What a conversation means for a run."""

import json
from typing import Any

import pytest

from dagwright.interfaces.http.bodies import ChatMessage
from dagwright.interfaces.http.conversation import Conversation, GivenAnswer, conversation_of
from dagwright.interfaces.http.errors import ApiError
from dagwright.planning.conversation import TurnSummary
from dagwright.protocol.documents import encoded_size


def said(*messages: Any, run: str | None = None) -> Conversation:
    return conversation_of([ChatMessage.model_validate(each) for each in messages], run=run)


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


def asking(call: str, name: str = "answer_feedback", arguments: Any = None) -> dict[str, Any]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {"run_id": "r", "request_id": "check"})
    return {"id": call, "type": "function", "function": {"name": name, "arguments": text}}


def test_request_is_the_last_message_with_what_the_system_says() -> None:
    found = said(
        {"role": "system", "content": "Be brief."}, {"role": "developer", "content": "In French."}, user("Hi.")
    )
    assert (found.text, found.words) == ("Hi.", "Be brief.\n\nIn French.\n\nHi.")


def test_parts_of_text_are_one_text() -> None:
    assert said(user([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])).text == "a\nb"


def test_what_was_said_before_is_told_as_turns() -> None:
    found = said(user("a"), user("b"), assistant("c"), assistant(None, tool_calls=[asking("1")]), user("d"), user("e"))
    assert found.said_before == [TurnSummary(1, "a\nb", "c"), TurnSummary(2, "d", "(no answer)")]
    greeted = said(assistant("How can I help?"), user("Go."))
    assert greeted.said_before == [TurnSummary(1, "(nothing)", "How can I help?")]


def test_long_conversation_is_told_as_far_as_the_documentation_says() -> None:
    before = [message for _ in range(40) for message in (user("q" * 9_000), assistant("a" * 9_000))]
    found = said(*before, user("Go." * 9_000))
    requests = [encoded_size(turn.human_message) for turn in found.said_before]
    answers = [encoded_size(turn.ai_response) for turn in found.said_before]
    assert (len(requests), min(requests) > 1_900, max(requests) <= 2_000) == (20, True, True)
    assert 8_000 < answers[-1] <= 8_192
    # So many of the others as there is room for in 16,000 bytes; of none of them it is said that there was none.
    assert all(1_900 < each <= 2_000 for each in answers[-4:-1])
    assert {turn.ai_response for turn in found.said_before[:-4]} == {"(left out)"}
    assert found.text == "Go." * 9_000


def test_results_of_answer_feedback_are_answers() -> None:
    found = said(
        user("a"),
        assistant("Publish?", tool_calls=[asking("1"), asking("2")]),
        {"role": "tool", "tool_call_id": "1", "content": "yes"},
        {"role": "tool", "tool_call_id": "2", "content": "no"},
    )
    assert found.answers == [GivenAnswer("1", "r", "yes"), GivenAnswer("2", "r", "no")]
    assert not found.other_tools


def test_results_of_other_functions_are_none() -> None:
    result = {"role": "tool", "tool_call_id": "1", "content": "12°"}
    found = said(user("a"), assistant(None, tool_calls=[asking("1", "weather")]), result)
    assert (found.answers, found.other_tools) == ([], True)


def test_result_without_its_call_answers_the_run_that_is_named_beside() -> None:
    result = {"role": "tool", "tool_call_id": "1", "content": "yes"}
    assert said(result, run="r").answers == [GivenAnswer("1", "r", "yes")]
    assert said(result).other_tools


@pytest.mark.parametrize(
    "messages",
    [
        [assistant("I end it.")],
        [user([{"type": "image_url", "image_url": {"url": "x"}}])],
        [
            assistant(None, tool_calls=[asking("1", arguments="{}")]),
            {"role": "tool", "tool_call_id": "1", "content": "yes"},
        ],
        [
            assistant(None, tool_calls=[asking("1", arguments="no JSON")]),
            {"role": "tool", "tool_call_id": "1", "content": "yes"},
        ],
        [
            assistant(None, tool_calls=[asking("1", arguments='{"run_id": "\\ud800"}')]),
            {"role": "tool", "tool_call_id": "1", "content": "yes"},
        ],
    ],
    ids=["assistant last", "picture", "arguments changed", "arguments lost", "no id of a run"],
)
def test_conversation_that_no_run_can_take_is_refused(messages: Any) -> None:
    with pytest.raises(ApiError) as refused:
        said(*messages)
    assert (refused.value.status, refused.value.param) == (400, "messages")
