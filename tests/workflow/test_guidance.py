"""People answer a GUIDANCE with nodes: the plan grows by them in the same act, wherever the question stands."""

from typing import Any

import pytest

from dagwright.contracts import wire
from tests.support.eventually import eventually
from tests.support.people import after, answer, asks, asks_below, has_notes, human, refusal_of, signal, view_of
from tests.support.runs import Document, Handle, Runs, as_shown, bare, document_of, done
from tests.support.tools import Bench

pytestmark = pytest.mark.server

_MORE = [after("look", "ask"), after("sum", "look", "a")]
_GIVEN = {"text": "Look north", "nodes": ["look", "sum"]}


def _asking(*others: Any) -> dict[str, Any]:
    return {"nodes": [after("a"), human("ask", "GUIDANCE"), after("on", "ask"), *others]}


async def _end(runs: Runs, handle: Handle) -> Document:
    document = await document_of(handle)
    assert (await view_of(runs, handle)).document() == as_shown(document)
    return document


async def test_nodes_of_an_answer_run_and_say_who_gave_them(runs: Runs) -> None:
    handle = await runs.start(_asking())
    await asks(runs, handle, "ask")
    wrong = {"request": "ask", "answer": {"nodes": [after("a"), after("x", "aa"), {"id": "y", "tool": "nothing"}]}}
    refused = await refusal_of(handle, wrong)
    assert refused.startswith("'ask': ")
    for problem in ("duplicate_id at /nodes/0/id", "did you mean 'a'", "there is no tool 'nothing'"):
        assert problem in refused
    told = await answer(handle, "ask", {"text": "Look north", "nodes": _MORE}, note="as the map says")
    assert told == {"ok": True, "message": "'ask' is answered"}
    document = await _end(runs, handle)
    assert bare(document)["nodes"] == {
        "a": done({}),
        "ask": done(_GIVEN),
        "on": done({"ask": _GIVEN}),
        "look": done({"ask": _GIVEN}),
        "sum": done({"look": {"ask": _GIVEN}, "a": {}}),
    }
    for node in ("look", "sum"):
        [step] = document["nodes"][node]["lineage"]["by_hand"]
        assert {name: part for name, part in step.items() if name != "at"} == {
            "what": "append_nodes",
            "by": "ann",
            "through": "update",
            "reason": "as the map says",
            "request": "ask",
        }


async def test_signal_with_nodes_may_name_tools_that_the_plan_does_not(runs: Runs) -> None:
    handle = await runs.start(_asking())
    await asks(runs, handle, "ask")
    assert "calculator" not in {node["tool"] for node in _asking()["nodes"] if "tool" in node}
    await signal(handle, "ask", {"nodes": [{"id": "rest", "tool": "calculator", "arguments": {"query": "1 + 1"}}]})
    document = await _end(runs, handle)
    assert document["nodes"]["rest"]["status"] == "completed"


async def test_signal_with_nodes_that_do_not_fit_is_noted_and_the_request_stays_open(runs: Runs) -> None:
    handle = await runs.start(_asking())
    await asks(runs, handle, "ask")
    await signal(handle, "ask", {"text": "x", "nodes": [after("a")]})
    await eventually(lambda: has_notes(runs, handle, 1))
    await asks(runs, handle, "ask")
    tools = {"fail": {"effects": "read", "task_queue": runs.tools["fail"].task_queue, "max_attempts": 1}}
    await signal(handle, "ask", {"nodes": [{"id": "bad", "tool": "fail"}], "tools": tools})
    document = await _end(runs, handle)
    [note] = document["notes"]
    assert note["code"] == "refused"
    assert note["message"].startswith("feedback: 'ask': duplicate_id at /nodes/0/id: the run has a node 'a' already")
    assert document["nodes"]["ask"]["result"] == {"text": "", "nodes": ["bad"]}
    assert document["nodes"]["bad"]["error"]["code"] == "tool_failed"


async def test_early_answer_with_nodes_counts_when_the_node_asks(runs: Runs, bench: Bench, unique: str) -> None:
    hold = {"id": "hold", "tool": "hold", "arguments": {"name": unique}}
    plan = {"nodes": [hold, {**human("ask", "GUIDANCE"), "depends_on": ["hold"]}, after("on", "ask")]}
    handle = await runs.start(plan)
    await eventually(lambda: unique in bench.entered)
    told = await answer(handle, "ask", {"text": "early", "nodes": [after("look", "ask")]})
    assert told["message"] == "'ask' has not asked yet; the answer is kept until it does"
    bench.open(unique)
    given = {"text": "early", "nodes": ["look"]}
    assert bare(await _end(runs, handle))["nodes"] == {
        "hold": done(unique), "ask": done(given), "on": done({"ask": given}), "look": done({"ask": given})
    }  # fmt: skip


async def test_nodes_are_added_to_the_sub_plan_that_asks(runs: Runs) -> None:
    handle = await runs.start({"nodes": [{"id": "archive", "plan": {"plan": 1, **_asking()}}]})
    await asks_below(runs, handle, "archive/ask")
    await answer(handle, "archive/ask", {"text": "Look north", "nodes": _MORE})
    document = await _end(runs, handle)
    assert document["output"] == {"archive": {"on": {"ask": _GIVEN}, "sum": {"look": {"ask": _GIVEN}, "a": {}}}}


async def test_nodes_for_what_several_items_ask_are_taken_for_one_alone(runs: Runs) -> None:
    handle = await runs.start({"nodes": [after("a"), {**human("q", "GUIDANCE"), "for_each": [1, 2]}]})
    await asks(runs, handle, "q[0]", "q[1]")
    message = {"request": "q", "answer": {"text": "x", "nodes": [after("look", "a")]}}
    assert "2 items ask; answer one alone" in await refusal_of(handle, message)
    await answer(handle, "q[1]", message["answer"])
    await answer(handle, "q", {"text": "y"})
    assert bare(await _end(runs, handle))["nodes"] == {
        "a": done({}),
        "q": done([{"text": "y"}, {"text": "x", "nodes": ["look"]}]),
        "q[0]": done({"text": "y"}),
        "q[1]": done({"text": "x", "nodes": ["look"]}),
        "look": done({"a": {}}),
    }


async def test_retry_with_other_arguments_of_what_asks_about_its_failure_is_a_new_node(runs: Runs) -> None:
    handle = await runs.start({"nodes": [{"id": "a", "tool": "fail", "on_error": "ask"}, after("on", "a")]})
    await asks(runs, handle, "a")
    await answer(handle, "a", {"selected": ["retry"], "arguments": {"message": "again"}})
    await asks(runs, handle, "a#2")
    await handle.execute_update(wire.SET_RESULT, {"node": "a#2", "result": 5})
    document = await _end(runs, handle)
    assert {name: node["status"] for name, node in document["nodes"].items()} == {
        "a": "superseded", "on": "completed", "a#2": "completed"
    }  # fmt: skip
    assert document["nodes"]["on"]["result"] == {"a": 5}
    assert document["nodes"]["a#2"]["supersedes"] == "a"
