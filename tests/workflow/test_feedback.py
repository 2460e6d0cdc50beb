"""People answer what a run asks: by update and by signal, early, twice, wrong, late, in items and in sub-plans."""

import pytest

from dagwright.core.boundary import wire
from tests.support.eventually import eventually
from tests.support.people import after, answer, asks, asks_below, has_notes, human, refusal_of, signal, view_of
from tests.support.runs import (
    Runs,
    as_shown,
    bare,
    bare_node,
    document_of,
    done,
    failed,
    raw,
    without_cache,
)
from tests.support.tools import Bench

pytestmark = pytest.mark.server

_APPROVED = {"approved": True, "reason": None}


async def test_answer_by_update_is_taken_and_its_dependent_goes_on(runs: Runs) -> None:
    handle = await runs.start({"nodes": [human("check", assignee="ann"), after("go", "check")]})
    await asks(runs, handle, "check")
    view = await view_of(runs, handle)
    assert (view.status, view.reason) == ("waiting", "waits for ann: What of check?")
    assert bare_node(view.document()["nodes"]["check"]) == {
        "status": "waiting",
        "reason": "waits for ann: What of check?",
    }
    assert await handle.query(wire.QUERY_PENDING) == view.document()["waiting_for"]
    assert await answer(handle, "check", {"approved": True}) == {"ok": True, "message": "'check' is answered"}
    document = await document_of(handle)
    assert bare(document) == {
        "status": "completed",
        "output": {"go": {"check": _APPROVED}},
        "nodes": {"check": done(_APPROVED), "go": done({"check": _APPROVED})},
    }
    assert document["waiting_for"] == []
    assert (await view_of(runs, handle)).document() == as_shown(document)


async def test_answer_by_signal_is_taken_and_a_refused_one_is_noted(runs: Runs) -> None:
    handle = await runs.start({"nodes": [human("pick", "SELECTION", options=["x", "y"]), after("go", "pick")]})
    await asks(runs, handle, "pick")
    await signal(handle, "pick", {"selected": ["z"]})
    await handle.signal(wire.SIGNAL_FEEDBACK, raw(b"no json"))
    await handle.signal(wire.SIGNAL_FEEDBACK, args=[])
    await eventually(lambda: has_notes(runs, handle, 3))
    noted = (await view_of(runs, handle)).document()["notes"]
    await signal(handle, "pick", {"selected": ["y"]})
    document = await document_of(handle)
    assert document["notes"] == noted
    assert [note["code"] for note in noted] == ["refused"] * 3
    assert [note["message"].partition(":")[0] for note in noted] == ["feedback"] * 3
    assert '"z"' in noted[0]["message"]
    assert bare(document)["nodes"] == {"pick": done({"selected": ["y"]}), "go": done({"pick": {"selected": ["y"]}})}


async def test_update_refuses_before_history(runs: Runs) -> None:
    handle = await runs.start({"nodes": [human("check"), human("other")]})
    await asks(runs, handle, "check", "other")
    assert "chekc" in await refusal_of(handle, {"request": "chekc", "answer": {"approved": True}})
    assert "'check'" in await refusal_of(handle, {"request": "check", "answer": {"selected": ["x"]}})
    assert "'answer'" in await refusal_of(handle, {"request": "check"})
    assert "object" in await refusal_of(handle, [1])
    await answer(handle, "check", {"approved": True})
    assert "answered by ann" in await refusal_of(handle, {"request": "check", "answer": {"approved": False}})
    await answer(handle, "other", {"approved": False, "reason": "no"})
    assert bare(await document_of(handle))["nodes"] == {
        "check": done(_APPROVED),
        "other": done({"approved": False, "reason": "no"}),
    }


@without_cache
async def test_early_answer_waits_for_its_request(runs: Runs, bench: Bench, unique: str) -> None:
    held = {"id": "held", "tool": "hold", "arguments": {"name": unique}}
    plan = {"nodes": [held, {**human("check"), "depends_on": ["held"]}, {**human("bad"), "depends_on": ["held"]}]}
    handle = await runs.start(plan)
    await eventually(lambda: unique in bench.entered)
    told = await answer(handle, "check", {"approved": True})
    assert told["message"] == "'check' has not asked yet; the answer is kept until it does"
    await signal(handle, "bad", {"text": "?"})
    bench.open(unique)
    await asks(runs, handle, "bad")
    await answer(handle, "bad", {"approved": True})
    document = await document_of(handle)
    assert {name: node["status"] for name, node in document["nodes"].items()} == dict.fromkeys(
        ("held", "check", "bad"), "completed"
    )
    assert [note["code"] for note in document["notes"]] == ["refused"]
    told = "feedback: 'bad' has not asked yet, and will not take this: unknown key 'text'; expected "
    assert document["notes"][0]["message"].startswith(told)
    assert (await view_of(runs, handle)).document() == as_shown(document)


async def test_deadline_fails_the_node_and_a_default_answers_it(runs: Runs) -> None:
    nodes = [
        human("late", deadline="300ms"),
        human("given", deadline="200ms", on_timeout={"default": {"approved": True, "reason": "nobody said no"}}),
        after("go", "given"),
    ]
    document = await document_of(handle := await runs.start({"nodes": nodes}))
    given = {"approved": True, "reason": "nobody said no"}
    assert bare(document)["nodes"] == {
        "late": failed("no_answer: nobody answered 'late' in time: What of late?"),
        "given": done(given),
        "go": done({"given": given}),
    }
    assert (await view_of(runs, handle)).document() == as_shown(document)


async def test_question_beside_an_open_one_leaves_a_command_behind(runs: Runs) -> None:
    """Without one a worker that has lost the run would be given the answer before the question."""
    later = {"tool": "echo", "id": "later", "for_each": [1, 2]}
    asking = {**human("each"), "for_each": [1, 2], "depends_on": ["later"]}
    handle = await runs.start({"nodes": [human("first"), later, asking]})
    await asks(runs, handle, "first", "each[0]", "each[1]")
    events = (await handle.fetch_history()).events
    last = max(event.event_id for event in events if event.HasField("activity_task_completed_event_attributes"))
    [changed] = [event for event in events if event.HasField("workflow_properties_modified_event_attributes")]
    assert changed.event_id > last
    await answer(handle, "each", {"approved": True})
    await answer(handle, "first", {"approved": True})
    assert bare(await document_of(handle))["nodes"]["each"] == done([_APPROVED] * 2)


async def test_request_of_a_sub_plan_is_seen_and_answered_through_the_run_above(runs: Runs) -> None:
    below = {"nodes": [human("check"), after("end", "check")], "output": "{{end.result}}"}
    handle = await runs.start({"nodes": [{"id": "in/side", "plan": {"nodes": [{"id": "deep", "plan": below}]}}]})
    await asks_below(runs, handle, "in/side/deep/check")
    assert (await view_of(runs, handle)).status == "waiting"
    told = await answer(handle, "in/side/deep/check", {"approved": True})
    assert told["ok"] is True
    document = await document_of(handle)
    assert document["output"] == {"in/side": {"deep": {"check": _APPROVED}}}


async def test_wrong_answer_that_was_sent_on_is_noted_below(runs: Runs) -> None:
    handle = await runs.start({"nodes": [{"id": "sub", "plan": {"nodes": [human("check")]}}]})
    await asks_below(runs, handle, "sub/check")
    await signal(handle, "sub/check", {"selected": []})
    below = runs.client.get_workflow_handle(f"{handle.id}/sub")

    async def is_noted() -> bool:
        return [note["code"] for note in (await view_of(runs, below)).notes] == ["refused"]

    await eventually(is_noted)
    await signal(handle, "sub/check", {"approved": True})
    assert bare(await document_of(handle))["nodes"] == {"sub": done({"check": _APPROVED})}


@without_cache
async def test_answer_before_the_first_workflow_task_counts(runs: Runs) -> None:
    handle = await runs.start_raw({"plan": {"nodes": [human("check")]}})
    await signal(handle, "check", {"approved": True})
    document = await document_of(handle)
    assert bare(document)["nodes"] == {"check": done(_APPROVED)}
    assert (await view_of(runs, handle)).document() == as_shown(document)


async def test_early_answer_that_nobody_asked_for_is_noted(runs: Runs, bench: Bench, unique: str) -> None:
    held = {"id": "held", "tool": "hold", "arguments": {"name": unique}}
    handle = await runs.start({"nodes": [held, {**human("check"), "depends_on": ["held"]}]})
    await eventually(lambda: unique in bench.entered)
    for name in ("held", "check#2"):
        await answer(handle, name, {"approved": True})
    bench.open(unique)
    await asks(runs, handle, "check")
    noted = (await view_of(runs, handle)).document()["notes"]
    await answer(handle, "check", {"approved": True})
    document = await document_of(handle)
    told = [{"code": "refused", "node": None, "message": _not_needed(name)} for name in ("held", "check#2")]
    assert (noted, document["notes"]) == (told[:1], told)
    assert (await view_of(runs, handle)).document() == as_shown(document)


def _not_needed(name: str) -> str:
    return f"{name!r} was never asked: the answer of ann, kept for it, is not needed"
