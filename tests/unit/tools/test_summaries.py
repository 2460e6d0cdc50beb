"""`summarize`: one question for a short text, parts for a long one, and what an attempt before has done."""

from typing import Any

import pytest

from dagwright.llm import Endpoint, ModelClient, ModelFailure
from dagwright.testing import ANY_NUMBER, ModelServer, busy, step
from dagwright.tools.builtin.summaries import PART_CHARACTERS, TEXT_LIMIT, parts_of, summarize
from dagwright.tools.testing import RecordedCall, tool_context


async def summary(server: ModelServer, text: Any, *, before: Any = None, **arguments: Any) -> tuple[Any, RecordedCall]:
    async with ModelClient(Endpoint(server.base_url), model="small") as client:
        with tool_context(ask=client.complete, last_heartbeat=before) as call:
            return await summarize(text, **arguments), call


async def test_a_short_text_is_one_question() -> None:
    async with ModelServer(" Short. ") as server:
        found, _ = await summary(server, "A long story", focus="names", words=20)
    assert found == {"summary": "Short."}
    [call] = server.calls
    assert call.metadata == {"purpose": "summarize"}
    assert call.messages[1]["content"] == "A long story"
    task = call.messages[0]["content"]
    assert task.startswith("You summarize texts. Write at most 20 words")
    assert task.endswith("The reader wants to know this above all: names")


async def test_results_of_a_search_are_summarized_as_json() -> None:
    async with ModelServer("Short.") as server:
        await summary(server, [{"title": "Caesar", "snippet": "55"}])
    assert server.calls[0].messages[1]["content"] == '[\n {\n  "title": "Caesar",\n  "snippet": "55"\n }\n]'


async def test_a_long_text_is_summarized_in_parts_and_then_as_a_whole() -> None:
    text = "\n\n".join(f"{number} " + "x" * (PART_CHARACTERS - 100) for number in range(3))
    steps = [step(f"sum {n}", text=f"Part {n} of 3 of a longer text:") for n in (1, 2, 3)]
    async with ModelServer(*steps, step("whole", last="sum 1\n\nsum 2\n\nsum 3")) as server:
        found, call = await summary(server, text)
    assert found == {"summary": "whole"}
    assert call.heartbeats[-1] == {"0.0": "sum 1", "0.1": "sum 2", "0.2": "sum 3"}


async def test_parts_that_an_attempt_before_has_done_are_not_asked_again() -> None:
    text = "\n\n".join("x" * (PART_CHARACTERS - 100) for _ in range(2))
    async with ModelServer(step("second", text="Part 2 of 2"), step("whole", last="first\n\nsecond")) as server:
        found, _ = await summary(server, text, before={"0.0": "first"})
    assert found == {"summary": "whole"}


async def test_a_model_that_says_too_much_comes_to_an_end() -> None:
    text = "word " * (PART_CHARACTERS // 2)
    async with ModelServer(step("y" * 100_000, text="of a longer text", times=ANY_NUMBER), "whole") as server:
        found, _ = await summary(server, text)
    assert found == {"summary": "whole"}


async def test_a_part_that_fails_fails_the_whole_with_its_reason() -> None:
    text = "x " * PART_CHARACTERS
    async with ModelServer(step(busy(), times=ANY_NUMBER)) as server:
        with pytest.raises(ModelFailure) as caught:
            await summary(server, text)
    assert caught.value.error == "model_busy"


async def test_nothing_and_too_much_are_refused_before_a_model_is_asked() -> None:
    async with ModelServer() as server:
        with pytest.raises(ValueError, match="there is nothing to summarize"):
            await summary(server, " \n")
        with pytest.raises(ValueError, match="over the limit of 2,000,000; split it"):
            await summary(server, "x" * (TEXT_LIMIT + 1))


def test_parts_end_where_a_reader_would_pause_and_lose_nothing() -> None:
    assert parts_of("short", 10) == ["short"]
    assert parts_of("one two three four", 10) == ["one two", "three four"]
    assert parts_of("a line here\nand more\n\nlast", 20) == ["a line here", "and more\n\nlast"]
    assert parts_of("x" * 25, 10) == ["x" * 10, "x" * 10, "x" * 5]
    text = "Some words, and some more. " * 500
    parts = parts_of(text, 1_000)
    assert "".join(parts).replace(" ", "") == text.replace(" ", "")
    assert max(map(len, parts)) <= 1_000
