"""Sessions on the real Temporal server: turns one after the other, and the context that each turn passes on."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowFailureError, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError

from dagwright.client import sessions
from dagwright.client.errors import RunIdInUse, RunIdInvalid, SessionNotFound, TurnRejected
from dagwright.client.sessions import PreparedTurn
from dagwright.client.starts import RunStartOptions, Started, StartRequest
from dagwright.core.boundary import limits, wire
from dagwright.core.expressions.value_refs import encoded_size
from dagwright.plans.preparation import check_plan, prepare_plan
from dagwright.protocol.sessions import SessionRecord, session_id
from dagwright.protocol.turn_summaries import CUT, RESPONSE_BYTES
from dagwright.server import Connection, Server
from tests.support.eventually import eventually
from tests.support.runs import Handle, document_of, raw
from tests.support.sessions import SessionBench, call, session_bench

pytestmark = pytest.mark.server

_IDENTIFYING = {wire.SEARCH_TITLE, wire.SEARCH_TEMPLATE, wire.SEARCH_TAGS}


@pytest.fixture(scope="module")
async def cached_bench(client: Client, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SessionBench]:
    async with session_bench(client, tmp_path_factory.mktemp("sessions")) as found:
        yield found


@pytest.fixture
async def bench(cached_bench: SessionBench) -> AsyncIterator[SessionBench]:
    """Sessions of a worker that the tests share; each history that a test made is checked and replayed."""
    yield cached_bench
    await cached_bench.runs.check_runs()


async def test_second_turn_uses_the_name_that_the_first_one_set(bench: SessionBench, unique: str) -> None:
    first = await bench.sessions.start_turn(unique, bench.turn(call("a", "name_fund", name="Apex"), request="Make it."))
    session = await bench.wait_for_turn_end(unique, first.workflow_id)
    assert session.names == {"cbu": {"id": "id-Apex", "name": "Apex", "kind": "fund"}}
    second = await bench.sessions.start_turn(unique, bench.turn(call("b", "echo", value="@cbu"), request="And that."))
    document = await document_of(bench.client.get_workflow_handle(second.workflow_id))
    assert document["nodes"]["b"]["result"] == {"value": "id-Apex"}
    session = await bench.wait_for_turn_end(unique, second.workflow_id)
    expected = [(1, "Make it.", "completed", ("cbu",)), (2, "And that.", "completed", ())]
    assert [(turn.number, turn.request, turn.status, turn.names) for turn in session.turns] == expected
    await eventually(lambda: _has_nothing_to_do(bench, unique))
    names = [EventType.Name(kind) for kind in await _kinds_of_events(bench, unique)]
    assert [name for name in names if "TIMER" in name or "ACTIVITY" in name] == []
    result = await (await bench.close(unique)).result()
    assert (result["status"], result["context"]) == ("ended", session.names)


async def _has_nothing_to_do(bench: SessionBench, name: str) -> bool:
    """Return whether an idle session has no open child and no open workflow task; a run reports its end twice."""
    described = (await bench.client.get_workflow_handle(session_id(name)).describe()).raw_description
    return not (described.pending_children or described.HasField("pending_workflow_task"))


async def test_stored_answer_is_complete_in_session_and_next_prompt(bench: SessionBench, unique: str) -> None:
    entries: list[str | None] = []
    long = bench.turn(call("a", "name_fund", name="Apex", padding=20_000), output="{{a.result.more}}")

    async def next_turn(session: SessionRecord) -> PreparedTurn:
        entries.append(session.turns[0].answer)
        return await bench.turn(call("b", "echo", value=1))(session)

    first = await bench.sessions.start_turn(unique, long)
    session = await bench.wait_for_turn_end(unique, first.workflow_id)
    document = await document_of(bench.client.get_workflow_handle(first.workflow_id))
    assert session.names == document["context"] == {"cbu": {"id": "id-Apex", "name": "Apex", "kind": "fund"}}
    [kept] = session.turns
    assert kept.response_ref is not None
    assert len(kept.response or "") < 1_000
    [whole] = (await bench.sessions.with_full_answers(session)).turns
    assert whole.answer == "x" * 20_000
    second = await bench.sessions.start_turn(unique, next_turn)
    await bench.wait_for_turn_end(unique, second.workflow_id)
    [answer] = entries
    assert answer is not None
    assert (encoded_size(answer) > RESPONSE_BYTES - 10, CUT in answer, answer[-9:]) == (True, True, "x" * 9)
    # A value that was removed from the store is known by its start.
    lost = session.with_answers({})
    lost.turns = [replace(kept, response_ref={"ref": f"v1/{'0' * 64}", "paths": []})]
    assert await bench.sessions.with_full_answers(lost) == lost
    await bench.close(unique)


async def test_turns_run_one_after_the_other_on_what_the_last_left(bench: SessionBench, unique: str) -> None:
    entries: list[str] = []
    held = bench.turn(call("a", "hold", name=unique), call("b", "name_fund", name="Apex"), request="First.")
    first = await bench.sessions.start_turn(unique, held)
    later = [
        asyncio.create_task(
            bench.sessions.start_turn(
                unique, bench.turn(call("c", "echo", value="@cbu")), on_busy=lambda turn: entries.append(turn.request)
            )
        )
        for _ in range(2)
    ]
    await eventually(lambda: len(entries) == 2)
    with pytest.raises(TurnRejected, match=f"is busy with the run '{first.workflow_id}'") as caught:
        await bench.sessions.start_turn(unique, bench.turn(call("c", "echo", value=1)))
    assert (caught.value.code, caught.value.run) == ("session_busy", first.workflow_id)
    bench.bench.open(unique)
    runs = [(await each).workflow_id for each in later]
    for run in runs:
        document = await document_of(bench.client.get_workflow_handle(run))
        assert document["nodes"]["c"]["result"] == {"value": "id-Apex"}
        await bench.wait_for_turn_end(unique, run)
    session = (await bench.sessions.find(unique)).session
    assert [(turn.number, turn.status) for turn in session.turns] == [(n, "completed") for n in (1, 2, 3)]
    assert {turn.run for turn in session.turns} == {first.workflow_id, *runs}
    starts = [turn.started_at or "" for turn in session.turns][1:]
    assert all(started >= (turn.ended_at or "z") for started, turn in zip(starts, session.turns, strict=False))
    await bench.close(unique)


async def test_same_turn_twice_is_one_run(bench: SessionBench, unique: str) -> None:
    prepare = bench.turn(call("a", "name_fund", name="Apex"))
    run = f"{unique} run"
    first, second = await asyncio.gather(
        *(bench.sessions.start_turn(unique, prepare, run=run, on_busy=lambda turn: None) for _ in range(2))
    )
    assert first.workflow_id == second.workflow_id == run
    session = await bench.wait_for_turn_end(unique, run)
    again = await bench.sessions.start_turn(unique, prepare, run=run)
    assert (again.workflow_id, again.is_new) == (run, False)
    assert (await bench.sessions.find(unique)).session == session
    assert len(session.turns) == 1
    handle = bench.client.get_workflow_handle(session_id(unique))
    start = {"run_id": run, "start": {"plan": {}}, "version": 77}
    result = await handle.execute_update(wire.UPDATE_START_TURN, start)
    assert result == {"ok": True, "run_id": run, "version": session.version}
    await bench.close(unique)


async def test_id_of_a_run_outside_the_session_is_refused(bench: SessionBench, unique: str) -> None:
    node = call("a", "name_fund", name="Apex")
    names, run, alone = [f"{unique} {n}" for n in range(3)], f"{unique} run", f"{unique} alone"

    async def take(name: str, run: str = run) -> Started:
        return await bench.sessions.start_turn(name, bench.turn(node), run=run, on_busy=lambda _: None)

    # The first two at once: each starts its own run before it sees the run of the other.
    ends = await asyncio.gather(*map(take, names[:2]), return_exceptions=True)
    assert [type(end) for end in ends].count(RunIdInUse) == 1, ends
    owner = names[[isinstance(end, Started) for end in ends].index(True)]
    await bench.wait_for_turn_end(owner, run)
    # A command for the turn of the other session would steer the run of the first one.
    [other_name] = {*names[:2]} - {owner}

    async def knows_no_turn() -> bool:
        return (await bench.sessions.read(other_name)).session.turns == []

    await eventually(knows_no_turn)
    with pytest.raises(RunIdInUse) as other:
        await take(names[2])
    assert f"belongs to a run of the session {owner!r}, not to a run of the session {names[2]!r}" in str(other.value)
    plan = {"plan": 1, "nodes": [node]}
    compiled = prepare_plan(check_plan(plan, bench.runs.tools), {})
    await bench.started.start(StartRequest(compiled, plan, workflow_id=alone))
    with pytest.raises(RunIdInUse) as outside:
        await take(owner, alone)
    assert f"belongs to a run outside of sessions, not to a run of the session {owner!r}" in str(outside.value)
    bench.runs.take(bench.client.get_workflow_handle(alone))
    for name in names[:2]:
        with suppress(SessionNotFound):
            await bench.close(name)


@pytest.mark.parametrize("way", ["signal", "temporal", "terminate"])
async def test_turn_that_is_stopped_in_any_way_frees_the_session(bench: SessionBench, unique: str, way: str) -> None:
    nodes = [call("a", "name_fund", name="Apex"), {**call("b", "hold", name=unique), "depends_on": ["a"]}]
    started = await bench.sessions.start_turn(unique, bench.turn(*nodes))
    handle = bench.client.get_workflow_handle(started.workflow_id)
    await eventually(lambda: unique in bench.bench.entered)
    match way:
        case "signal":
            await handle.signal(wire.CANCEL, {"reason": "enough"})
        case "temporal":
            await handle.cancel()
        case _:
            await handle.terminate("gone")
    await _becomes_idle(bench, unique)
    session = (await bench.sessions.find(unique)).session
    expected = ("failed", ()) if way == "terminate" else ("cancelled", ("cbu",))
    assert (session.turns[0].status, session.turns[0].names) == expected
    assert [*session.names] == [*expected[1]]
    bench.bench.open(unique)
    if way == "terminate":
        assert session.turns[0].outcome is not None
        assert "terminated" in session.turns[0].outcome.lower()
        await bench.sessions.end(unique)
    else:
        await bench.close(unique)


async def _becomes_idle(bench: SessionBench, name: str) -> None:
    async def is_idle() -> bool:
        return (await bench.sessions.find(name)).session.status == "idle"

    await eventually(is_idle)


async def test_last_turn_of_a_terminated_session_is_reported_like_its_run(bench: SessionBench, unique: str) -> None:
    nodes = [call("a", "name_fund", name="Apex"), {**call("b", "hold", name=unique), "depends_on": ["a"]}]
    started = await bench.sessions.start_turn(unique, bench.turn(*nodes))
    await eventually(lambda: unique in bench.bench.entered)
    await bench.client.get_workflow_handle(session_id(unique)).terminate("gone")
    (turn,) = (await bench.sessions.find(unique)).session.turns
    assert (turn.status, turn.ended_at) == ("running", None)
    bench.bench.open(unique)
    await bench.client.get_workflow_handle(started.workflow_id).result()
    view = await bench.sessions.find(unique)
    (turn,) = view.session.turns
    assert (view.is_open, turn.status, turn.names, turn.ended_at is None) == (False, "completed", ("cbu",), False)


async def test_invalid_turns_are_refused_with_their_reason(bench: SessionBench, unique: str) -> None:
    handle = await bench.client.start_workflow(
        wire.WORKFLOW_SESSION, {"session_id": unique}, id=session_id(unique), task_queue=bench.runs.task_queue
    )
    messages: list[tuple[Any, str]] = [
        ((), "invalid"),
        ((1, 2, 3), "invalid"),
        (({"run_id": "x" * 300, "start": {}},), "invalid"),
        (({"run_id": "r", "start": {}, "workflow": "Session"},), "invalid"),
        (({"run_id": "r", "start": {"more": "x" * 1_100_000}},), "too_large"),
        (({"run_id": "r", "start": {}, "version": 9},), "session_changed"),
    ]
    for message, code in messages:
        with pytest.raises(WorkflowUpdateFailedError) as caught:
            await handle.execute_update(wire.UPDATE_START_TURN, args=message)
        cause = caught.value.cause
        assert isinstance(cause, ApplicationError)
        assert (cause.type, cause.details[0]["code"]) == (wire.ERROR_REFUSED, code)
    await bench.close(unique)


async def test_invalid_messages_and_failed_starts_change_no_session(bench: SessionBench, unique: str) -> None:
    handle = await bench.client.start_workflow(
        wire.WORKFLOW_SESSION, {"session_id": unique}, id=session_id(unique), task_queue=bench.runs.task_queue
    )
    messages: list[Any] = [None, "x", 3, [], {}, {"turn": "r"}, {"turn": "r", "status": "completed"}, {"turn": 1}]
    for message in messages:
        await handle.signal(wire.SIGNAL_TURN_ENDED, message)
    await handle.signal(wire.SIGNAL_TURN_ENDED, args=[1, 2])
    await handle.signal("nobody_knows", args=[1, 2])
    # The input of the run cannot be read, so it does not report.
    await handle.execute_update(wire.UPDATE_START_TURN, {"run_id": f"{unique} a", "start": {"neither": 1}})
    await _becomes_idle(bench, unique)
    # Its own id belongs to a run already.
    result = await handle.execute_update(wire.UPDATE_START_TURN, {"run_id": session_id(unique), "start": {"goal": "x"}})

    async def is_compensated() -> bool:
        return (await bench.sessions.find(unique)).session.version > int(result["version"])

    await eventually(is_compensated)
    [turn] = (await bench.sessions.find(unique)).session.turns
    assert (turn.run, turn.status, turn.names) == (f"{unique} a", "failed", ())
    assert (turn.outcome or "").partition(":")[0] == "invalid"
    await bench.close(unique)


async def test_session_with_invalid_input_fails_with_the_expected_input(bench: SessionBench, unique: str) -> None:
    expected = f'expected {{"session_id": "{unique}"}}, got '
    inputs: list[tuple[list[Any], str]] = [
        *(([], "None"), ([None], "None"), ([{}], "{}"), ([{"session_id": "other"}], "{'session_id': 'other'}")),
        *(([1, 2, 3], "[None, None, None]"), ([raw(b"{")], "the payload is not JSON")),
    ]
    for number, (arguments, actual) in enumerate(inputs):
        handle = await bench.runs.start_raw(*arguments, workflow_id=session_id(unique), workflow=wire.WORKFLOW_SESSION)
        failure = await _failure_of(handle)
        assert (failure.type, actual in failure.message) == (wire.ERROR_REFUSED, True), failure
        assert number == 5 or failure.message == f"the input of a session is invalid: {expected}{actual}"
    handle = await bench.runs.start_raw({"session_id": unique}, workflow_id=unique, workflow=wire.WORKFLOW_SESSION)
    assert (await _failure_of(handle)).message == f"the workflow ID of a session is session-NAME, not {unique!r}"


async def test_unknown_workflow_type_fails_with_the_nearest_known_type(bench: SessionBench, unique: str) -> None:
    handle = await bench.runs.start_raw({"plan": {}}, 2, workflow_id=unique, workflow="RunPlans")
    failure = await _failure_of(handle)
    assert (failure.type, failure.non_retryable) == (wire.ERROR_UNKNOWN_TYPE, True)
    known = "CallLimit, PlanAndExecute, RunAgent, RunPlan, Session"
    assert failure.message == f"unknown workflow type 'RunPlans'; known types: {known}; did you mean 'RunPlan'?"


async def _failure_of(handle: Handle) -> ApplicationError:
    with pytest.raises(WorkflowFailureError) as failure:
        await handle.result()
    assert isinstance(failure.value.cause, ApplicationError)
    return failure.value.cause


async def test_run_of_a_turn_has_title_and_tags_of_its_own(bench: SessionBench, unique: str) -> None:
    inner = {"plan": 1, "title": f"{unique} below", "nodes": [call("b", "echo", value=1)]}
    plan = {"plan": 1, "title": unique, "nodes": [{"id": "a", "plan": inner}]}

    async def prepare(_: SessionRecord) -> PreparedTurn:
        compiled = prepare_plan(check_plan(plan, bench.runs.tools), {})
        options = RunStartOptions(tags={"team": "blue", "env": "test"})
        start = StartRequest(compiled, plan, options=options, template="nightly")
        return PreparedTurn("Do it.", await bench.started.encode(start))

    started = await bench.sessions.start_turn(unique, prepare)
    await bench.wait_for_turn_end(unique, started.workflow_id)
    expected: dict[str, dict[str, Any]] = {
        started.workflow_id: {
            "DagwrightTitle": unique,
            "DagwrightTemplate": "nightly",
            "DagwrightTags": ["env=test", "team=blue"],
        },
        f"{started.workflow_id}/a": {"DagwrightTitle": f"{unique} below"},
    }
    for run, attributes in expected.items():
        found = (await bench.client.get_workflow_handle(run).describe()).typed_search_attributes
        shown = {pair.key.name: pair.value for pair in found.search_attributes if pair.key.name in _IDENTIFYING}
        assert {name: sorted(value) if isinstance(value, list) else value for name, value in shown.items()} == {
            "DagwrightTags": ["env=test", "team=blue"],
            **attributes,
        }
    await bench.close(unique)


async def test_session_with_an_invalid_memo_ends_with_the_reason(bench: SessionBench, unique: str) -> None:
    handle = await bench.client.start_workflow(
        wire.WORKFLOW_SESSION,
        {"session_id": unique},
        id=session_id(unique),
        task_queue=bench.runs.task_queue,
        memo={wire.MEMO_SESSION_STATE: {"version": "x"}},
    )
    with pytest.raises(WorkflowFailureError) as failure:
        await handle.result()
    assert isinstance(failure.value.cause, ApplicationError)
    assert failure.value.cause.type == wire.ERROR_REFUSED
    with pytest.raises(SessionNotFound, match="cannot be read"):
        await bench.sessions.find(unique)


async def test_ended_session_waits_for_its_turn_and_a_new_one_is_empty(bench: SessionBench, unique: str) -> None:
    nodes = [call("a", "name_fund", name="Apex"), {**call("b", "hold", name=unique), "depends_on": ["a"]}]
    started = await bench.sessions.start_turn(unique, bench.turn(*nodes))
    closed = await bench.close(unique)
    assert (await bench.sessions.find(unique)).to_json()["status"] == "ending"
    with pytest.raises(TurnRejected) as caught:
        await bench.sessions.start_turn(unique, bench.turn(call("a", "echo", value=1)))
    assert caught.value.code == "session_busy"
    bench.bench.open(unique)
    result = await closed.result()
    assert (result["status"], result["turns"][0]["run_id"]) == ("ended", started.workflow_id)
    assert (await bench.sessions.find(unique)).to_json()["status"] == "ended"
    assert (await bench.sessions.read(unique)).session.names == {}
    with pytest.raises(SessionNotFound, match="has ended already"):
        await bench.sessions.end(unique)
    again = await bench.sessions.start_turn(unique, bench.turn(call("c", "echo", value="@cbu")))
    document = await document_of(bench.client.get_workflow_handle(again.workflow_id))
    assert document["nodes"]["c"]["result"] == {"value": "@cbu"}
    await bench.wait_for_turn_end(unique, again.workflow_id)
    await bench.close(unique)


async def test_no_run_gets_the_id_of_a_session_and_a_run_keeps_its_own(bench: SessionBench, unique: str) -> None:
    prepared = prepare_plan(check_plan({"nodes": [call("a", "echo", value=1)]}, bench.runs.tools), {})
    with pytest.raises(RunIdInvalid, match="starts with 'session-', which is reserved for sessions: choose another ID"):
        await bench.started.start(StartRequest(prepared, workflow_id=session_id(unique)))
    sending = await bench.started.encode(StartRequest(prepared))
    await bench.client.start_workflow(
        sending.workflow, sending.content, id=session_id(unique), task_queue=bench.runs.task_queue
    )
    with pytest.raises(SessionNotFound, match="is a run, not a session"):
        await bench.sessions.read(unique)
    await bench.client.get_workflow_handle(session_id(unique)).result()


async def test_session_continues_between_turns(
    bench: SessionBench, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DRAIN_AT_EVENTS", 14)
    executions = []
    for number in range(4):
        started = await bench.sessions.start_turn(
            unique, bench.turn(call("a", "name_fund", name=f"Fund {number}"), request=f"{number}")
        )
        session = await bench.wait_for_turn_end(unique, started.workflow_id)
        executions.append((await bench.sessions.find(unique)).run_id)
    assert [turn.request for turn in session.turns] == ["0", "1", "2", "3"]
    assert session.names["cbu"]["id"] == "id-Fund 3"
    assert len(set(executions)) > 1
    await _close_all(bench, unique)
    # With the marks of these executions.
    await bench.runs.check_runs()


async def test_terminated_earlier_turn_fails(bench: SessionBench, unique: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SUB_PLAN_CHECK_S", 0.5)
    started = await _turn_that_outlives_its_execution(bench, unique, monkeypatch)
    await bench.client.get_workflow_handle(started.workflow_id).terminate("gone")
    await _becomes_idle(bench, unique)
    (turn,) = (await bench.sessions.find(unique)).session.turns
    assert (turn.status, turn.outcome) == ("failed", "terminated: the sub-plan was terminated")
    bench.bench.open(unique)
    await bench.sessions.end(unique)


async def test_turn_of_an_execution_before_is_looked_after_only_as_long_as_it_runs(
    bench: SessionBench, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Longer than this test: only the end of the turn ends the look.
    monkeypatch.setattr(limits, "SUB_PLAN_CHECK_S", 600.0)
    started = await _turn_that_outlives_its_execution(bench, unique, monkeypatch)
    session = (await bench.sessions.find(unique)).session
    assert (session.status, session.turns[0].run) == ("running", started.workflow_id)

    async def is_looking() -> bool:
        return (await _kinds_of_events(bench, unique))[EventType.EVENT_TYPE_TIMER_STARTED] == 1

    await eventually(is_looking)
    bench.bench.open(unique)
    assert [*(await bench.wait_for_turn_end(unique, started.workflow_id)).names] == ["cbu"]
    following = await bench.sessions.start_turn(unique, bench.turn(call("c", "hold", name=f"{unique} 2")))
    await eventually(lambda: f"{unique} 2" in bench.bench.entered)
    kinds = await _kinds_of_events(bench, unique)
    assert (kinds[EventType.EVENT_TYPE_TIMER_STARTED], kinds[EventType.EVENT_TYPE_TIMER_CANCELED]) == (1, 1)
    bench.bench.open(f"{unique} 2")
    await bench.wait_for_turn_end(unique, following.workflow_id)
    await bench.sessions.end(unique)


async def _turn_that_outlives_its_execution(
    bench: SessionBench, unique: str, monkeypatch: pytest.MonkeyPatch
) -> Started:
    """Start a turn that names a fund and then holds, in a session that continues as new meanwhile."""
    nodes = [call("a", "name_fund", name="Apex"), {**call("b", "hold", name=unique), "depends_on": ["a"]}]
    started = await bench.sessions.start_turn(unique, bench.turn(*nodes))
    first = (await bench.sessions.find(unique)).run_id
    await eventually(lambda: unique in bench.bench.entered)
    # A flood of signals that say nothing.
    monkeypatch.setattr(limits, "DRAIN_AT_SIGNALS", 3)
    handle = bench.client.get_workflow_handle(session_id(unique))
    for _ in range(4):
        await handle.signal(wire.SIGNAL_TURN_ENDED, {})

    async def is_elsewhere() -> bool:
        return (await bench.sessions.find(unique)).run_id != first

    await eventually(is_elsewhere)
    monkeypatch.setattr(limits, "DRAIN_AT_SIGNALS", 8_000)
    return started


async def _kinds_of_events(bench: SessionBench, name: str) -> "Counter[EventType.ValueType]":
    history = await bench.client.get_workflow_handle(session_id(name)).fetch_history()
    return Counter(event.event_type for event in history.events)


async def _close_all(bench: SessionBench, name: str) -> None:
    """End a session, all of whose executions are looked at, and replayed, at the end of the block."""
    view = await bench.sessions.find(name)
    described = await bench.client.get_workflow_handle(view.workflow_id).describe()
    await bench.sessions.end(name)
    first = described.raw_info.first_run_id
    bench.runs.take(bench.client.get_workflow_handle(view.workflow_id, run_id=first))


async def test_turn_without_a_worker_is_reported_and_starts_once_when_one_comes(
    client: Client, tmp_path: Path, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "TURN_TIMEOUT_S", 1.0)
    async with session_bench(client, tmp_path) as bench:
        prepare = bench.turn(call("a", "name_fund", name="Apex"))
        queue = bench.runs.task_queue
        absent = sessions.Sessions(
            Connection(client, Server("nowhere", "default"), frozenset()), bench.started, task_queue=f"{queue}-absent"
        )
        with pytest.raises(TurnRejected, match="no worker serves the session") as caught:
            await absent.start_turn(unique, prepare, run=f"{unique} run")
        assert caught.value.code == "no_worker"
        await client.get_workflow_handle(session_id(unique)).terminate("it has no worker")
        monkeypatch.setattr(sessions, "TURN_TIMEOUT_S", 60.0)
        started = await bench.sessions.start_turn(unique, prepare, run=f"{unique} run")
        assert len((await bench.wait_for_turn_end(unique, started.workflow_id)).turns) == 1
        await bench.close(unique)
