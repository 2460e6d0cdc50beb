"""People answer a GUIDANCE with nodes: the plan grows by them in the same act, wherever the question stands."""

from typing import Any

import pytest

from tests.support.people import after, answer, asks, asks_below, human, refusal_of, signal, view_of
from tests.support.runs import Document, Handle, Runs, as_shown, bare, document_of, done

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


async def test_nodes_are_added_to_the_sub_plan_that_asks(runs: Runs) -> None:
    handle = await runs.start({"nodes": [{"id": "archive", "plan": {"plan": 1, **_asking()}}]})
    await asks_below(runs, handle, "archive/ask")
    await answer(handle, "archive/ask", {"text": "Look north", "nodes": _MORE})
    document = await _end(runs, handle)
    assert document["output"] == {"archive": {"on": {"ask": _GIVEN}, "sum": {"look": {"ask": _GIVEN}, "a": {}}}}
