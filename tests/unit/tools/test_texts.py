"""`json_query`, `render_template` and `wait`."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dagwright.tools.builtin.texts import json_query, render_template
from dagwright.tools.builtin.waiting import wait
from dagwright.tools.testing import tool_context

STORE = {"items": [{"name": "a", "price": 5}, {"name": "b", "price": 20}], "a.b": {"c": 1}}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("$.items[?@.price < 10].name", ["a"]),
        ("$..price", [5, 20]),
        ("$['a.b'].c", [1]),
        ("$.items[-1].name", ["b"]),
        ("$.none", []),
        ("$", [STORE]),
        ("$.items[?match(@.name, '[b-z]')].price", [20]),
    ],
)
def test_a_query_returns_all_matches_in_order(path: str, found: list[Any]) -> None:
    assert json_query(STORE, path) == found


@pytest.mark.parametrize("path", ["items", "$.", "$[", "", "$.items[?@.price ~ 1]", "$" + "[?@" * 2000])
def test_a_text_that_is_no_query_is_told(path: str) -> None:
    with pytest.raises(ValueError, match="is no JSONPath query"):
        json_query(STORE, path)


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("Dear ${name},\n", "Dear Ann,\n"),
        ("Dear {{ name | upper }}", "Dear ANN"),
        ("${items.keys} costs $100", "7 costs $100"),
        (
            "{% for row in rows %}${loop.index}:${row.n}{% if not loop.last %}, {% endif %}{% endfor %}",
            "1:3, 2:4",
        ),
        (
            "{{ rows | length * 2 }} {{ rows | map(attribute='n') | sum }} {{ rows[0].items() | list }}",
            "4 7 [('n', 3)]",
        ),
        ("<b>{{ tag }}</b>", "<b><i></b>"),
        ("", ""),
    ],
)
def test_values_are_filled_in(template: str, text: str) -> None:
    values = {"name": "Ann", "rows": [{"n": 3}, {"n": 4}], "tag": "<i>", "items": {"keys": 7}}
    assert render_template(template, values) == text


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("${nobody}", "'nobody' is undefined"),
        ("${row.none}", "no attribute 'none'"),
        ("{% if %}", r"cannot be read: .* \(line 1\)"),
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
        ("{% for i in row recursive %}{% endfor %}", "loops inside each other"),
        ("{% for a in row %}" * 4 + "{% endfor %}" * 4, "more than 3 loops inside each other"),
        ("{{ lipsum() }}", "'lipsum' is undefined"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ 1 + 'x' }}", "unsupported operand"),
        (
            "{% for a in range(999) %}{% for b in range(999) %}xxxxxxxxxxxxxxxxxxxx{% endfor %}{% endfor %}",
            "over the limit of 16,777,216",
        ),
    ],
)
def test_a_template_that_cannot_be_filled_or_runs_away_is_told(template: str, message: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        render_template(template, {"row": {"n": 1}})
    assert_matches(str(caught.value), message)


def assert_matches(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        raise ValueError(text)


async def test_waiting_takes_its_time_and_tells_start_and_end() -> None:
    with tool_context() as call:
        result = await wait("20ms")
    start, end = (datetime.fromisoformat(result[key]) for key in ("started_at", "ended_at"))
    assert end - start >= timedelta(milliseconds=20)
    assert datetime.fromisoformat(call.heartbeats[0]) - start < timedelta(milliseconds=1)


async def test_a_wait_taken_over_goes_on_from_its_first_start() -> None:
    start = datetime.now(UTC) - timedelta(hours=2)
    with tool_context(attempt=2, last_heartbeat=start.isoformat()):
        result = await asyncio.wait_for(wait("2h"), 120)
    assert datetime.fromisoformat(result["started_at"]) == start.replace(microsecond=start.microsecond // 1000 * 1000)


@pytest.mark.parametrize("duration", ["soon", "31d", -1, float("inf"), 10**9])
async def test_a_wait_that_is_none_is_refused(duration: str | float) -> None:
    with tool_context(), pytest.raises(ValueError, match=r"no duration|longest wait|no number of seconds"):
        await wait(duration)
