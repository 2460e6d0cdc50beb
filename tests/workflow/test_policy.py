"""Which calls a run asks people about: by its policy, and in a plan that a model wrote by one approval of the whole."""

from typing import Any

import pytest

from dagwright.core.boundary import wire
from dagwright.core.model.policy import policy_from_json
from dagwright.history.run_reader import RunFeed
from tests.support.eventually import eventually
from tests.support.runs import Handle, Runs, as_shown, bare, document_of, done, failed
from tests.support.tools import Bench

pytestmark = pytest.mark.server


def _write(node: str, name: str, **fields: Any) -> dict[str, Any]:
    return {"id": node, "tool": "write", "arguments": {"name": name}, **fields}


async def _asks(runs: Runs, handle: Handle, *requests: str) -> list[dict[str, Any]]:
    """Waits until a run itself asks exactly this."""
    found: list[dict[str, Any]] = []

    async def does() -> bool:
        found[:] = (await RunFeed(runs.client, handle.id).read()).document()["waiting_for"]
        return [request["id"] for request in found] == list(requests)

    await eventually(does)
    return found


async def _answer(handle: Handle, request: str, **answer: Any) -> None:
    message = {"request": request, "answer": answer, "by": "ann"}
    await handle.execute_update(wire.UPDATE_SUBMIT_FEEDBACK, message)


async def test_policy_asks_about_the_calls_that_it_names(runs: Runs, bench: Bench, unique: str) -> None:
    rule = {
        "tool": "wr*",
        "arguments": {"properties": {"name": {"pattern": "1$"}}},
        "then": "ask",
    }
    policy = policy_from_json({"rules": [rule, {"arguments": {"required": ["error"]}, "then": "refuse"}]})
    nodes = [
        _write("first", f"{unique}1"),
        _write("second", f"{unique}2"),
        {"id": "never", "tool": "write", "arguments": {"name": unique, "error": "no"}},
    ]
    handle = await runs.start({"nodes": nodes}, policy=policy)
    [request] = await _asks(runs, handle, "first")
    asked = {name: request[name] for name in ("purpose", "type", "tool", "arguments")}
    assert asked == {"purpose": "approval", "type": "APPROVAL", "tool": "write", "arguments": {"name": f"{unique}1"}}
    await _answer(handle, "first", approved=True, arguments={"name": f"{unique}3"})

    assert bare(await document_of(handle))["nodes"] == {
        "first": done(f"{unique}3"),
        "second": done(f"{unique}2"),
        "never": failed("refused: the policy of the run does not let 'write' be called so"),
    }
    assert f"{unique}1" not in bench.effects


async def test_what_a_policy_refuses_is_refused_whatever_the_plan_says(runs: Runs, bench: Bench, unique: str) -> None:
    policy = policy_from_json({"rules": [{"tool": "write", "then": "refuse"}], "otherwise": "run"})
    nodes = [
        {**_write("silent", f"{unique}1"), "approval": "never"},
        {**_write("asked", f"{unique}2"), "approval": "required"},
        {**_write("each", f"{unique}{{{{item}}}}"), "approval": "never", "for_each": [3]},
    ]
    document = bare(await document_of(await runs.start({"nodes": nodes}, policy=policy)))
    told = "the policy of the run does not let 'write' be called so"
    assert [document["nodes"][name] for name in ("silent", "asked")] == [failed(f"refused: {told}")] * 2
    assert document["nodes"]["each"]["status"] == "failed"
    assert not any(effect.startswith(unique) for effect in bench.effects)


async def test_tool_approved_for_the_whole_run_is_not_asked_about_again(runs: Runs, unique: str) -> None:
    policy = policy_from_json({"rules": [{"effects": ["write"], "then": "ask"}]})
    below = {"nodes": [_write("deep", f"{unique}3")], "output": "{{deep.result}}"}
    nodes = [
        _write("a", f"{unique}1"),
        _write("b", f"{unique}2"),
        {"id": "below", "plan": below, "depends_on": ["a"]},
    ]
    handle = await runs.start({"nodes": nodes}, policy=policy)
    await _asks(runs, handle, "a", "b")
    await _answer(handle, "b", approved=True, remember=True)

    document = await document_of(handle)
    assert bare(document)["nodes"] == {"a": done(f"{unique}1"), "b": done(f"{unique}2"), "below": done(f"{unique}3")}
    assert (await RunFeed(runs.client, handle.id).read()).document() == as_shown(document)


async def test_plan_of_a_model_runs_when_it_was_approved_as_a_whole(runs: Runs, bench: Bench, unique: str) -> None:
    below = {"nodes": [_write("deep", f"{unique}2")], "output": "{{deep.result}}"}
    handle = await runs.start(
        {"nodes": [_write("a", f"{unique}1"), {"id": "below", "plan": below}]}, needs_approval=True
    )
    [request] = await _asks(runs, handle, "plan")
    view = await RunFeed(runs.client, handle.id).read()
    assert (view.status, request["node"], bench.effects[f"{unique}1"]) == ("waiting", None, [])
    assert request["prompt"].splitlines()[0] == "The plan has 3 nodes; 2 of them can change something."
    await _answer(handle, "plan", approved=True)

    document = await document_of(handle)
    assert bare(document)["nodes"] == {"a": done(f"{unique}1"), "below": done(f"{unique}2")}
    assert (await RunFeed(runs.client, handle.id).read()).document() == as_shown(document)


async def test_plan_of_a_model_that_is_rejected_calls_nothing(runs: Runs, bench: Bench, unique: str) -> None:
    handle = await runs.start_raw({"plan": {"nodes": [_write("a", unique)]}, "options": {"approve_plan": True}})
    await _asks(runs, handle, "plan")
    await _answer(handle, "plan", approved=False, reason="too dear")

    document = await document_of(handle)
    assert (document["status"], document["error"]["code"]) == ("failed", "rejected")
    assert document["error"]["message"] == "rejected by ann: too dear"
    assert bench.effects[unique] == []
    assert (await RunFeed(runs.client, handle.id).read()).document() == as_shown(document)
