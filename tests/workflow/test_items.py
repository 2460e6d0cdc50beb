"""`for_each` on the real server: keys, limits, failures, and lists that are none."""

from typing import Any

import pytest

from tests.support.eventually import eventually
from tests.support.runs import SKIPPED, Runs, blocked, document_of, done, failed
from tests.support.tools import Bench

pytestmark = pytest.mark.server


def _over(items: Any, **node: Any) -> dict[str, Any]:
    """Returns a plan whose node `m` runs for each of the items that node `list` gives."""
    return {
        "nodes": [
            {"id": "list", "tool": "echo", "arguments": {"items": items}},
            {
                "id": "m",
                "tool": "echo",
                "for_each": "{{list.result.items}}",
                "arguments": {"item": "{{item}}"},
                **node,
            },
            {"id": "after", "tool": "echo", "arguments": {"all": "{{m.result}}"}},
        ]
    }


async def test_items_keep_their_order_and_have_names(runs: Runs) -> None:
    items = [{"name": "north", "n": 2}, {"name": "south", "n": 1}]
    plan = _over(items, key="{{item.name}}", arguments={"n": "{{item.n}}", "at": "{{index}}"})
    values = [{"n": 2, "at": 0}, {"n": 1, "at": 1}]
    assert await runs.run(plan) == {
        "status": "completed",
        "output": {"after": {"all": values}},
        "nodes": {
            "list": done({"items": items}),
            "m": done(values),
            "m[north]": done(values[0]),
            "m[south]": done(values[1]),
            "after": done({"all": values}),
        },
    }


async def test_items_of_a_literal_list_are_named_by_position(runs: Runs) -> None:
    plan = {"nodes": [{"id": "m", "tool": "echo", "for_each": [5, "x", None], "arguments": {"item": "{{item}}"}}]}
    document = await runs.run(plan)
    values = [{"item": 5}, {"item": "x"}, {"item": None}]
    assert document["output"] == {"m": values}
    assert list(document["nodes"]) == ["m", "m[0]", "m[1]", "m[2]"]


async def test_no_items_are_an_empty_result(runs: Runs) -> None:
    document = await runs.run(_over([]))
    assert document["nodes"] == {
        "list": done({"items": []}),
        "m": done([]),
        "after": done({"all": []}),
    }


async def test_null_skips_the_node(runs: Runs) -> None:
    document = await runs.run(_over(None))
    assert document["nodes"] == {"list": done({"items": None}), "m": SKIPPED, "after": SKIPPED}


async def test_what_is_no_list_fails_the_node(runs: Runs) -> None:
    document = await runs.run(_over({"a": 1}))
    assert document["nodes"] == {
        "list": done({"items": {"a": 1}}),
        "m": failed("invalid_for_each: for_each needs a list, not '{\"a\":1}'"),
        "after": blocked("m"),
    }


async def test_equal_keys_fail_the_node(runs: Runs) -> None:
    document = await runs.run(_over(["x", "x"], key="{{item}}"))
    message = "'m[x]' names two items or nodes; the keys of 'm' must differ from each other"
    assert document["nodes"]["m"] == failed(f"duplicate_key: {message}")


async def test_failed_items_fail_the_node_after_all_ended(runs: Runs) -> None:
    plan = _over(["a", "b", "c"], tool="fail", arguments={"message": "{{item}}"}, when='item != "b"')
    document = await runs.run(plan)
    assert document["nodes"] == {
        "list": done({"items": ["a", "b", "c"]}),
        "m": failed("tool_failed: 2 of 3 items failed; the first: m[0]: a"),
        "m[0]": failed("tool_failed: a"),
        "m[1]": SKIPPED,
        "m[2]": failed("tool_failed: c"),
        "after": blocked("m"),
    }


async def test_value_of_a_failed_item_stands_in_the_list(runs: Runs) -> None:
    plan = _over(
        [1, 3],
        tool="flaky",
        arguments={"until": "{{item}}"},
        on_error={"value": None},
        retry={"max_attempts": 2, "first_delay": "10ms"},
    )
    document = await runs.run(plan)
    assert document["nodes"] == {
        "list": done({"items": [1, 3]}),
        "m": done([1, None]),
        "m[0]": done(1),
        "m[1]": done(None, error="tool_failed: RuntimeError: attempt 2", attempts=2),
        "after": done({"all": [1, None]}),
    }


async def test_at_most_max_parallel_items_run_at_once(runs: Runs, bench: Bench, unique: str) -> None:
    # Three wait for a second one beside them, so two at once are both needed and allowed.
    plan = {
        "nodes": [
            {
                "id": "m",
                "tool": "hold",
                "for_each": [unique] * 6,
                "max_parallel": 2,
                "arguments": {"name": "{{item}}"},
            }
        ]
    }
    handle = await runs.start(plan)
    await eventually(lambda: bench.running[unique] == 2)
    bench.open(unique)
    assert (await document_of(handle))["output"] == {"m": [unique] * 6}
    assert (bench.entered.count(unique), bench.most_running[unique]) == (6, 2)


async def test_at_most_max_parallel_calls_of_a_tool_run_at_once(runs: Runs, unique: str) -> None:
    nodes = [{"id": f"n{number}", "tool": "narrow", "arguments": {"name": unique, "wanted": 2}} for number in range(6)]
    document = await runs.run({"nodes": nodes})
    assert document["output"] == {f"n{number}": 2 for number in range(6)}
