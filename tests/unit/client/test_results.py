"""Results of the Python API from documents of a real scheduler, without a server."""

import pickle
from dataclasses import replace
from typing import Any

import pydantic_core
import pytest

from dagwright.client.feedback import FeedbackRejected
from dagwright.client.feedback_request import answer_content
from dagwright.client.results import RunCancelled, RunFailed, ValueNotLoaded, read_nodes, read_result
from dagwright.core.errors import NodeError
from dagwright.core.expressions.projection import describe
from dagwright.core.model.states import RunStatus
from dagwright.features.run_scheduler import RunScheduler
from dagwright.history.run_reader import RunView
from tests.support.memory_store import MemoryStore
from tests.unit.interfaces.cli.views import START, node, start_ready, view_of


async def stored(store: MemoryStore, value: Any, *, name: str) -> Any:
    content = pydantic_core.to_json(value)
    return describe(value, await store.put(content), size_bytes=len(content), projections=(), name=f"{name}.result")


def ended(*nodes: dict[str, Any], results: dict[str, Any]) -> RunView:
    """Return a run whose nodes have ended with these results, or errors."""

    def step(scheduler: RunScheduler) -> None:
        for name, result in results.items():
            if isinstance(result, NodeError):
                scheduler.fail(name, result, at=START + 1)
            else:
                scheduler.complete(name, result, at=START + 1)
            start_ready(scheduler)

    return view_of(*nodes, step=step)


async def test_values_of_the_store_are_loaded() -> None:
    store = MemoryStore()
    view = ended(node("a"), node("b", "a"), results={"a": await stored(store, "x" * 50_000, name="a"), "b": 2})
    result = await read_result(view, store)
    assert (result.nodes["a"].result, result.nodes["b"].result) == ("x" * 50_000, 2)
    assert (result.output, result.status) == ({"b": 2}, RunStatus.COMPLETED)
    assert result.raise_on_failure() is result


async def test_results_are_short_in_print() -> None:
    view = ended(node("a"), node("b", "a"), results={"a": {"text": "x" * 50_000}, "b": NodeError("bad", "no luck")})
    result = await read_result(view, MemoryStore())
    assert str(result) == f"RunResult({view.workflow_id!r}, status='failed', error=\"'b' failed: no luck\")"
    assert str(result.nodes["a"]).startswith("NodeResult('a', status='completed', result={'text': 'xxx")
    assert len(str(result.nodes["a"])) < 300
    assert str(result.nodes["b"]) == "NodeResult('b', status='failed', error='no luck')"
    assert str(result.nodes) == "NodeResults(2 nodes: ['a', 'b'])"
    completed = await read_result(ended(node("a"), results={"a": list(range(1_000))}), MemoryStore())
    assert str(completed).startswith("RunResult(")
    assert "output={'a': [0, 1, 2" in str(completed)
    assert len(str(completed)) < 300


async def test_values_over_the_limit_are_not_loaded_and_can_be_read_one_by_one() -> None:
    store = MemoryStore()
    values = {name: await stored(store, name * 50_000, name=name) for name in "abc"}
    view = ended(*(node(name) for name in "abc"), results=values)
    result = await read_result(view, store, max_bytes=60_000)
    assert [(name, each.is_loaded) for name, each in result.nodes.items()] == [("a", True), ("b", False), ("c", False)]
    with pytest.raises(ValueNotLoaded, match=r"'c' is not loaded: .*run\.nodes\(\)"):
        _ = result.nodes["c"].result
    assert [each.result[:1] async for each in read_nodes(view, store)] == ["a", "b", "c"]
    assert {len(value) for value in result.output.values()} == {50_000}


async def test_value_that_is_lost_is_an_error_and_not_a_reference() -> None:
    store = MemoryStore()
    lost = await stored(store, "x" * 50_000, name="a")
    store.contents.clear()
    result = await read_result(ended(node("a"), node("b", "a"), results={"a": lost, "b": 2}), store)
    assert result.output == {"b": 2}
    with pytest.raises(ValueNotLoaded, match="'a' is not loaded: a: "):
        _ = result.nodes["a"].result
    result = await read_result(ended(node("a"), results={"a": lost}), store)
    with pytest.raises(ValueNotLoaded, match="the output of the run 'run-1' is not loaded"):
        _ = result.output


async def test_failed_run_raises_with_a_problem_for_each_failed_node() -> None:
    error = NodeError("tool_failed", "out of stock")
    view = ended(node("a"), node("b"), node("c", "a", "b"), results={"a": error, "b": error})
    result = await read_result(replace(view, status="failed"), MemoryStore())
    with pytest.raises(RunFailed, match="the run 'run-1' failed: 'a' failed: out of stock; 1 more failed") as failed:
        result.raise_on_failure()
    assert [(each.node, each.code) for each in failed.value.problems] == [("a", "tool_failed"), ("b", "tool_failed")]
    assert result.nodes["c"].blocked_by == ("a", "b")
    assert pickle.loads(pickle.dumps(failed.value)).result.status == RunStatus.FAILED
    with pytest.raises(RunCancelled, match="was cancelled"):
        replace(result, status=RunStatus.CANCELLED, error=None).raise_on_failure()


def test_answers_are_written_as_runs_read_them() -> None:
    assert answer_content({"approved": True, "reason": "fine", "by": "ann"}) == {"approved": True, "reason": "fine"}
    assert answer_content({"selected": "large"}) == {"selected": ["large"]}
    assert answer_content({"nodes": [{"id": "a"}]}) == {"text": ""}
    assert answer_content({"data": {"amount": 3}, "note": "checked"}) == {"data": {"amount": 3}}
    with pytest.raises(FeedbackRejected, match="an answer is missing"):
        answer_content({"by": "ann"})
