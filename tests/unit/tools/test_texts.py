"""`json_query`, `render_template`, `wait` and `summarize`."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dagwright.llm import Endpoint, ModelClient, ModelFailure
from dagwright.testing import ANY_NUMBER, ModelServer, When, busy, step
from dagwright.tools.builtin.summaries import MAX_TEXT_CHARACTERS, PART_CHARACTERS, split_text, summarize
from dagwright.tools.builtin.texts import json_query, render_template
from dagwright.tools.builtin.waiting import wait
from dagwright.tools.testing import RecordedCall, tool_context

SHOP = {"items": [{"name": "a", "price": 5}, {"name": "b", "price": 20}], "a.b": {"c": 1}}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("$.items[?@.price < 10].name", ["a"]),
        ("$..price", [5, 20]),
        ("$['a.b'].c", [1]),
        ("$.items[-1].name", ["b"]),
        ("$.none", []),
        ("$", [SHOP]),
        ("$.items[?match(@.name, '[b-z]')].price", [20]),
    ],
)
def test_query_returns_all_matches_in_order(path: str, expected: list[Any]) -> None:
    assert json_query(SHOP, path) == expected


@pytest.mark.parametrize("path", ["items", "$.", "$[", "", "$.items[?@.price ~ 1]", "$" + "[?@" * 2000])
def test_invalid_query_is_reported(path: str) -> None:
    with pytest.raises(ValueError, match="is not a JSONPath query"):
        json_query(SHOP, path)


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("Dear ${name},\n", "Dear Ann,\n"),
        ("Dear {{ name | upper }}", "Dear ANN"),
        ("${items.keys} costs $100", "7 costs $100"),
        ("{% for row in rows %}${loop.index}:${row.n}{% if not loop.last %}, {% endif %}{% endfor %}", "1:3, 2:4"),
        (
            "{{ rows | length * 2 }} {{ rows | map(attribute='n') | sum }} {{ rows[0].items() | list }}",
            "4 7 [('n', 3)]",
        ),
        ("<b>{{ tag }}</b>", "<b><i></b>"),
        ("", ""),
    ],
)
def test_template_is_rendered_with_its_values(template: str, text: str) -> None:
    values = {"name": "Ann", "rows": [{"n": 3}, {"n": 4}], "tag": "<i>", "items": {"keys": 7}}
    assert render_template(template, values) == text


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("${nobody}", "'nobody' is undefined"),
        ("${row.none}", "no attribute 'none'"),
        ("{% if %}", r"Invalid template: .* \(line 1\)"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ 'x' * 999999999 }}", "not allowed"),
        ("{{ '%999999999d' % 1 }}", "not allowed"),
        ("{{ 9 ** 999999 }}", "not allowed"),
        ("{{ '{:999999999}'.format(1) }}", "not safely callable"),
        ("{{ 'x'.ljust(999999999) }}", "not safely callable"),
        ("{{ 'x' | center(999999999) }}", "No filter named 'center'"),
        ("{% for i in range(999999) %}x{% endfor %}", "over the limit of 1,000"),
        ("{% macro m() %}${m()}{% endmacro %}", "{% macro %}, which is not allowed"),
        ("{% include 'x' %}", "{% include %}, which is not allowed"),
        ("{% for i in row recursive %}{% endfor %}", "nested loops"),
        ("{% for a in row %}" * 4 + "{% endfor %}" * 4, "more than 3 nested loops"),
        ("{{ lipsum() }}", "'lipsum' is undefined"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ 1 + 'x' }}", "unsupported operand"),
        ("{% for a in range(999) %}" * 2 + "x" * 20 + "{% endfor %}" * 2, "over the limit of 16,777,216"),
    ],
)
def test_invalid_or_unbounded_template_is_reported(template: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        render_template(template, {"row": {"n": 1}})


async def test_wait_lasts_its_duration_and_reports_start_and_end() -> None:
    with tool_context() as call:
        result = await wait("20ms")
    start, end = (datetime.fromisoformat(result[key]) for key in ("started_at", "ended_at"))
    assert end - start >= timedelta(milliseconds=20)
    assert datetime.fromisoformat(call.heartbeats[0]) - start < timedelta(milliseconds=1)


async def test_resumed_wait_continues_from_its_first_start() -> None:
    start = datetime.now(UTC) - timedelta(hours=2)
    with tool_context(attempt=2, last_heartbeat=start.isoformat()):
        result = await asyncio.wait_for(wait("2h"), 120)
    assert datetime.fromisoformat(result["started_at"]) == start.replace(microsecond=start.microsecond // 1000 * 1000)


@pytest.mark.parametrize("duration", ["soon", "31d", -1, float("inf"), 10**9])
async def test_invalid_wait_is_rejected(duration: str | float) -> None:
    with tool_context(), pytest.raises(ValueError, match=r"not a duration|longest wait|not a number of seconds"):
        await wait(duration)


# Summaries.


async def run_summarize(
    server: ModelServer, text: Any, *, last_heartbeat: Any = None, **arguments: Any
) -> tuple[Any, RecordedCall]:
    async with ModelClient(Endpoint(server.base_url), model="small") as client:
        with tool_context(ask=client.complete, last_heartbeat=last_heartbeat) as call:
            return await summarize(text, **arguments), call


async def test_summary_of_a_short_text_takes_one_model_call() -> None:
    async with ModelServer(" Short. ") as server:
        result, _ = await run_summarize(server, "A long story", focus="names", words=20)
    assert result == {"summary": "Short."}
    [call] = server.calls
    assert call.metadata == {"purpose": "summarize"}
    assert call.messages[1]["content"] == "A long story"
    system_prompt = call.messages[0]["content"]
    assert system_prompt.startswith("You summarize texts. Write at most 20 words")
    assert system_prompt.endswith("Focus on this question of the reader: names")


async def test_results_of_a_search_are_summarized_as_json() -> None:
    async with ModelServer("Short.") as server:
        await run_summarize(server, [{"title": "Caesar", "snippet": "55"}])
    assert server.calls[0].messages[1]["content"] == '[\n {\n  "title": "Caesar",\n  "snippet": "55"\n }\n]'


async def test_long_text_is_summarized_in_parts_and_then_as_a_whole() -> None:
    text = "\n\n".join(f"{number} " + "x" * (PART_CHARACTERS - 100) for number in range(3))
    steps = [step(f"sum {n}", when=When(text=f"Part {n} of 3 of a longer text:")) for n in (1, 2, 3)]
    async with ModelServer(*steps, step("whole", when=When(last="sum 1\n\nsum 2\n\nsum 3"))) as server:
        result, call = await run_summarize(server, text)
    assert result == {"summary": "whole"}
    # A key has the level of the summaries and the index of the part: `0.2` is the third part of the original text.
    assert call.heartbeats[-1] == {"0.0": "sum 1", "0.1": "sum 2", "0.2": "sum 3"}


async def test_parts_summarized_by_an_earlier_attempt_are_not_repeated() -> None:
    text = "\n\n".join("x" * (PART_CHARACTERS - 100) for _ in range(2))
    async with ModelServer(
        step("second", when=When(text="Part 2 of 2")), step("whole", when=When(last="first\n\nsecond"))
    ) as server:
        result, _ = await run_summarize(server, text, last_heartbeat={"0.0": "first"})
    assert result == {"summary": "whole"}


async def test_summarizing_ends_although_each_summary_is_longer_than_its_part() -> None:
    text = "word " * (PART_CHARACTERS // 2)
    async with ModelServer(
        step("y" * 100_000, when=When(text="of a longer text"), times=ANY_NUMBER), "whole"
    ) as server:
        result, _ = await run_summarize(server, text)
    assert result == {"summary": "whole"}


async def test_summary_fails_with_the_failure_of_a_part() -> None:
    text = "x " * PART_CHARACTERS
    async with ModelServer(step(busy(), times=ANY_NUMBER)) as server:
        with pytest.raises(ModelFailure) as caught:
            await run_summarize(server, text)
    assert caught.value.error == "model_busy"


async def test_empty_and_too_long_texts_are_rejected_before_a_model_call() -> None:
    async with ModelServer() as server:
        with pytest.raises(ValueError, match="The text is empty"):
            await run_summarize(server, " \n")
        with pytest.raises(ValueError, match="over the limit of 2,000,000; split it"):
            await run_summarize(server, "x" * (MAX_TEXT_CHARACTERS + 1))


def test_parts_end_at_words_or_lines_and_contain_the_whole_text() -> None:
    assert split_text("short", 10) == ["short"]
    assert split_text("one two three four", 10) == ["one two", "three four"]
    assert split_text("a line here\nand more\n\nlast", 20) == ["a line here", "and more\n\nlast"]
    assert split_text("x" * 25, 10) == ["x" * 10, "x" * 10, "x" * 5]
    text = "Some words, and some more. " * 500
    parts = split_text(text, 1_000)
    assert "".join(parts).replace(" ", "") == text.replace(" ", "")
    assert max(map(len, parts)) <= 1_000
