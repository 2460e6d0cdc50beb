"""Sessions on the real Temporal server: the order of turns, and the context that each turn passes to the next."""

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
from dagwright.client.starts import RunStartOptions, StartedRun, StartRequest
from dagwright.core.boundary import limits, wire
from dagwright.core.expressions.value_refs import encoded_size
from dagwright.plans.preparation import check_plan, prepare_plan
from dagwright.protocol.sessions import SessionRecord, session_workflow_id
from dagwright.protocol.turn_summaries import CUT_MARK, MAX_RESPONSE_BYTES
from dagwright.server import Connection, Server
from tests.support.eventually import eventually
from tests.support.goals import call_node
from tests.support.people import hold_node
from tests.support.runs import Document, Handle, document_of, raw_value
from tests.support.sessions import SessionHarness, session_harness

pytestmark = pytest.mark.server

_IDENTIFYING_ATTRIBUTES = {wire.SEARCH_TITLE, wire.SEARCH_TEMPLATE, wire.SEARCH_TAGS}


@pytest.fixture(scope="module")
async def shared_harness(client: Client, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SessionHarness]:
    async with session_harness(client, tmp_path_factory.mktemp("sessions")) as harness:
        yield harness


@pytest.fixture
async def harness(shared_harness: SessionHarness) -> AsyncIterator[SessionHarness]:
    """Sessions of a worker that the tests share. After each test, the histories are checked and replayed."""
    yield shared_harness
    await shared_harness.runs.check_runs()


def _fund_and_held_nodes(gate_name: str) -> tuple[Document, Document]:
    """Return the nodes of a turn that sets `@cbu` to a fund, then runs until the test opens the gate."""
    return call_node("a", "name_fund", name="Apex"), hold_node("b", gate_name, "a")


async def _start_session(harness: SessionHarness, session_name: str, **options: Any) -> Handle:
    """Start the workflow of a session. `check_runs` does not check this workflow."""
    return await harness.client.start_workflow(
        wire.WORKFLOW_SESSION,
        {"session_id": session_name},
        id=session_workflow_id(session_name),
        task_queue=harness.runs.task_queue,
        **options,
    )


async def test_turn_uses_the_at_name_that_an_earlier_turn_set(harness: SessionHarness, unique_name: str) -> None:
    first_turn = await harness.sessions.start_turn(
        unique_name, harness.turn(call_node("a", "name_fund", name="Apex"), request="Make it.")
    )
    session = await harness.wait_for_turn_end(unique_name, first_turn.run_id)
    assert session.names == {"cbu": {"id": "id-Apex", "name": "Apex", "kind": "fund"}}
    second_turn = await harness.sessions.start_turn(
        unique_name, harness.turn(call_node("b", "echo", value="@cbu"), request="And that.")
    )
    document = await document_of(harness.client.get_workflow_handle(second_turn.run_id))
    assert document["nodes"]["b"]["result"] == {"value": "id-Apex"}
    session = await harness.wait_for_turn_end(unique_name, second_turn.run_id)
    expected = [(1, "Make it.", "completed", ("cbu",)), (2, "And that.", "completed", ())]
    assert [(turn.number, turn.request, turn.status, turn.names) for turn in session.turns] == expected
    await eventually(lambda: _is_idle_on_server(harness, unique_name))
    event_types = [EventType.Name(kind) for kind in await _count_events_by_kind(harness, unique_name)]
    assert [name for name in event_types if "TIMER" in name or "ACTIVITY" in name] == []
    result = await (await harness.close(unique_name)).result()
    assert (result["status"], result["context"]) == ("ended", session.names)


async def _is_idle_on_server(harness: SessionHarness, session_name: str) -> bool:
    """Return whether a session has no open child and no open workflow task.

    A session with the status `idle` may still have both, because it receives the end of a run twice: as a signal and as
    the end of a child workflow.
    """
    description = (
        await harness.client.get_workflow_handle(session_workflow_id(session_name)).describe()
    ).raw_description
    return not (description.pending_children or description.HasField("pending_workflow_task"))


async def test_stored_answer_is_complete_for_readers_and_shortened_for_the_next_turn(
    harness: SessionHarness, unique_name: str
) -> None:
    answers: list[str | None] = []
    long_turn = harness.turn(call_node("a", "name_fund", name="Apex", padding=20_000), output="{{a.result.more}}")

    async def prepare_next_turn(session: SessionRecord) -> PreparedTurn:
        answers.append(session.turns[0].answer)
        return await harness.turn(call_node("b", "echo", value=1))(session)

    first_turn = await harness.sessions.start_turn(unique_name, long_turn)
    session = await harness.wait_for_turn_end(unique_name, first_turn.run_id)
    document = await document_of(harness.client.get_workflow_handle(first_turn.run_id))
    assert session.names == document["context"] == {"cbu": {"id": "id-Apex", "name": "Apex", "kind": "fund"}}
    [turn] = session.turns
    assert turn.response_ref is not None
    assert len(turn.response or "") < 1_000
    [full_turn] = (await harness.sessions.with_full_answers(session)).turns
    assert full_turn.answer == "x" * 20_000
    second_turn = await harness.sessions.start_turn(unique_name, prepare_next_turn)
    await harness.wait_for_turn_end(unique_name, second_turn.run_id)
    [answer] = answers
    assert answer is not None
    assert (encoded_size(answer) > MAX_RESPONSE_BYTES - 10, CUT_MARK in answer, answer[-9:]) == (True, True, "x" * 9)
    # The session still has the first characters of a value that was removed from the store.
    session_with_lost_answer = session.with_answers({})
    session_with_lost_answer.turns = [replace(turn, response_ref={"ref": f"v1/{'0' * 64}", "paths": []})]
    assert await harness.sessions.with_full_answers(session_with_lost_answer) == session_with_lost_answer
    await harness.close(unique_name)


async def test_turns_run_in_sequence_with_the_at_names_of_earlier_turns(
    harness: SessionHarness, unique_name: str
) -> None:
    busy_requests: list[str] = []
    held_turn = harness.turn(
        call_node("a", "hold", name=unique_name), call_node("b", "name_fund", name="Apex"), request="First."
    )
    first_turn = await harness.sessions.start_turn(unique_name, held_turn)
    later_starts = [
        asyncio.create_task(
            harness.sessions.start_turn(
                unique_name,
                harness.turn(call_node("c", "echo", value="@cbu")),
                on_busy=lambda turn: busy_requests.append(turn.request),
            )
        )
        for _ in range(2)
    ]
    await eventually(lambda: len(busy_requests) == 2)
    with pytest.raises(TurnRejected, match=f"is busy with the run '{first_turn.run_id}'") as error:
        await harness.sessions.start_turn(unique_name, harness.turn(call_node("c", "echo", value=1)))
    assert (error.value.code, error.value.run_id) == ("session_busy", first_turn.run_id)
    harness.tool_harness.open(unique_name)
    run_ids = [(await task).run_id for task in later_starts]
    for run_id in run_ids:
        document = await document_of(harness.client.get_workflow_handle(run_id))
        assert document["nodes"]["c"]["result"] == {"value": "id-Apex"}
        await harness.wait_for_turn_end(unique_name, run_id)
    session = (await harness.sessions.find(unique_name)).session
    assert [(turn.number, turn.status) for turn in session.turns] == [(n, "completed") for n in (1, 2, 3)]
    assert {turn.run_id for turn in session.turns} == {first_turn.run_id, *run_ids}
    start_times = [turn.started_at or "" for turn in session.turns][1:]
    assert all(start >= (turn.ended_at or "z") for start, turn in zip(start_times, session.turns, strict=False))
    await harness.close(unique_name)


async def test_repeated_start_of_a_turn_returns_its_run(harness: SessionHarness, unique_name: str) -> None:
    prepare = harness.turn(call_node("a", "name_fund", name="Apex"))
    run_id = f"{unique_name} run"
    first_start, second_start = await asyncio.gather(
        *(harness.sessions.start_turn(unique_name, prepare, run_id=run_id, on_busy=lambda turn: None) for _ in range(2))
    )
    assert first_start.run_id == second_start.run_id == run_id
    session = await harness.wait_for_turn_end(unique_name, run_id)
    repeated_start = await harness.sessions.start_turn(unique_name, prepare, run_id=run_id)
    assert (repeated_start.run_id, repeated_start.is_new) == (run_id, False)
    assert (await harness.sessions.find(unique_name)).session == session
    assert len(session.turns) == 1
    handle = harness.client.get_workflow_handle(session_workflow_id(unique_name))
    message = {"run_id": run_id, "start": {"plan": {}}, "version": 77}
    result = await handle.execute_update(wire.UPDATE_START_TURN, message)
    assert result == {"ok": True, "run_id": run_id, "version": session.version}
    await harness.close(unique_name)


async def test_turn_with_the_id_of_a_run_outside_the_session_is_rejected(
    harness: SessionHarness, unique_name: str
) -> None:
    node = call_node("a", "name_fund", name="Apex")
    session_names = [f"{unique_name} {n}" for n in range(3)]
    run_id, separate_run_id = f"{unique_name} run", f"{unique_name} alone"

    async def start_turn(session_name: str, run_id: str = run_id) -> StartedRun:
        return await harness.sessions.start_turn(
            session_name, harness.turn(node), run_id=run_id, on_busy=lambda _: None
        )

    # Two sessions start the same run concurrently, before either can see the run of the other session.
    outcomes = await asyncio.gather(*map(start_turn, session_names[:2]), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes].count(RunIdInUse) == 1, outcomes
    owner_name = session_names[[isinstance(outcome, StartedRun) for outcome in outcomes].index(True)]
    await harness.wait_for_turn_end(owner_name, run_id)
    # If the losing session had the turn, a command for this turn would steer the run of the owner.
    [losing_name] = {*session_names[:2]} - {owner_name}

    async def has_no_turn() -> bool:
        return (await harness.sessions.read(losing_name)).session.turns == []

    await eventually(has_no_turn)
    with pytest.raises(RunIdInUse) as error:
        await start_turn(session_names[2])
    assert f"belongs to a run of the session {owner_name!r}, not to a run of the session {session_names[2]!r}" in str(
        error.value
    )
    plan = {"plan": 1, "nodes": [node]}
    compiled = prepare_plan(check_plan(plan, harness.runs.tools), {})
    await harness.client_runs.start(StartRequest(compiled, plan, run_id=separate_run_id))
    with pytest.raises(RunIdInUse) as error:
        await start_turn(owner_name, separate_run_id)
    assert f"belongs to a run outside of sessions, not to a run of the session {owner_name!r}" in str(error.value)
    harness.runs.include_in_checks(harness.client.get_workflow_handle(separate_run_id))
    for session_name in session_names[:2]:
        with suppress(SessionNotFound):
            await harness.close(session_name)


@pytest.mark.parametrize("channel", ["signal", "temporal", "terminate"])
async def test_cancelled_or_terminated_turn_leaves_the_session_idle(
    harness: SessionHarness, unique_name: str, channel: str
) -> None:
    started_turn = await harness.sessions.start_turn(unique_name, harness.turn(*_fund_and_held_nodes(unique_name)))
    handle = harness.client.get_workflow_handle(started_turn.run_id)
    await eventually(lambda: unique_name in harness.tool_harness.entered)
    match channel:
        case "signal":
            await handle.signal(wire.CANCEL, {"reason": "enough"})
        case "temporal":
            await handle.cancel()
        case _:
            await handle.terminate("gone")
    await _wait_until_idle(harness, unique_name)
    session = (await harness.sessions.find(unique_name)).session
    expected = ("failed", ()) if channel == "terminate" else ("cancelled", ("cbu",))
    assert (session.turns[0].status, session.turns[0].names) == expected
    assert [*session.names] == [*expected[1]]
    harness.tool_harness.open(unique_name)
    if channel == "terminate":
        assert session.turns[0].outcome is not None
        assert "terminated" in session.turns[0].outcome.lower()
        await harness.sessions.end(unique_name)
    else:
        await harness.close(unique_name)


async def _wait_until_idle(harness: SessionHarness, session_name: str) -> None:
    async def is_idle() -> bool:
        return (await harness.sessions.find(session_name)).session.status == "idle"

    await eventually(is_idle)


async def test_terminated_session_reports_the_run_state_of_its_last_turn(
    harness: SessionHarness, unique_name: str
) -> None:
    started_turn = await harness.sessions.start_turn(unique_name, harness.turn(*_fund_and_held_nodes(unique_name)))
    await eventually(lambda: unique_name in harness.tool_harness.entered)
    await harness.client.get_workflow_handle(session_workflow_id(unique_name)).terminate("gone")
    (turn,) = (await harness.sessions.find(unique_name)).session.turns
    assert (turn.status, turn.ended_at) == ("running", None)
    harness.tool_harness.open(unique_name)
    await harness.client.get_workflow_handle(started_turn.run_id).result()
    view = await harness.sessions.find(unique_name)
    (turn,) = view.session.turns
    assert (view.is_open, turn.status, turn.names, turn.ended_at is None) == (False, "completed", ("cbu",), False)


async def test_invalid_start_of_a_turn_is_rejected_with_its_code(harness: SessionHarness, unique_name: str) -> None:
    handle = await _start_session(harness, unique_name)
    cases: list[tuple[Any, str]] = [
        ((), "invalid"),
        ((1, 2, 3), "invalid"),
        (({"run_id": "x" * 300, "start": {}},), "invalid"),
        (({"run_id": "r", "start": {}, "workflow": "Session"},), "invalid"),
        (({"run_id": "r", "start": {"more": "x" * 1_100_000}},), "too_large"),
        (({"run_id": "r", "start": {}, "version": 9},), "session_changed"),
    ]
    for arguments, code in cases:
        with pytest.raises(WorkflowUpdateFailedError) as error:
            await handle.execute_update(wire.UPDATE_START_TURN, args=arguments)
        cause = error.value.cause
        assert isinstance(cause, ApplicationError)
        assert (cause.type, cause.details[0]["code"]) == (wire.ERROR_REJECTED, code)
    await harness.close(unique_name)


async def test_session_ignores_invalid_messages_and_records_failed_starts(
    harness: SessionHarness, unique_name: str
) -> None:
    handle = await _start_session(harness, unique_name)
    messages: list[Any] = [None, "x", 3, [], {}, {"turn": "r"}, {"turn": "r", "status": "completed"}, {"turn": 1}]
    for message in messages:
        await handle.signal(wire.SIGNAL_TURN_ENDED, message)
    await handle.signal(wire.SIGNAL_TURN_ENDED, args=[1, 2])
    await handle.signal("unknown_signal", args=[1, 2])
    # The run cannot read its input, so it does not report its end.
    await handle.execute_update(wire.UPDATE_START_TURN, {"run_id": f"{unique_name} a", "start": {"neither": 1}})
    await _wait_until_idle(harness, unique_name)
    # The ID of the session is in use, so the run cannot start.
    result = await handle.execute_update(
        wire.UPDATE_START_TURN, {"run_id": session_workflow_id(unique_name), "start": {"goal": "x"}}
    )

    async def has_newer_version() -> bool:
        return (await harness.sessions.find(unique_name)).session.version > int(result["version"])

    await eventually(has_newer_version)
    [turn] = (await harness.sessions.find(unique_name)).session.turns
    assert (turn.run_id, turn.status, turn.names) == (f"{unique_name} a", "failed", ())
    assert (turn.outcome or "").partition(":")[0] == "invalid"
    await harness.close(unique_name)


async def test_error_of_a_session_with_invalid_input_describes_the_valid_input(
    harness: SessionHarness, unique_name: str
) -> None:
    expected = f'expected {{"session_id": "{unique_name}"}}, got '
    inputs: list[tuple[list[Any], str]] = [
        *(([], "None"), ([None], "None"), ([{}], "{}"), ([{"session_id": "other"}], "{'session_id': 'other'}")),
        *(([1, 2, 3], "[None, None, None]"), ([raw_value(b"{")], "the payload is not JSON")),
    ]
    for number, (arguments, received) in enumerate(inputs):
        handle = await harness.runs.start_raw(
            *arguments, workflow_id=session_workflow_id(unique_name), workflow=wire.WORKFLOW_SESSION
        )
        failure = await _wait_for_failure(handle)
        assert (failure.type, received in failure.message) == (wire.ERROR_REJECTED, True), failure
        # The message about the last input, which is not JSON, has another form.
        assert number == 5 or failure.message == f"the input of a session is invalid: {expected}{received}"
    handle = await harness.runs.start_raw(
        {"session_id": unique_name}, workflow_id=unique_name, workflow=wire.WORKFLOW_SESSION
    )
    assert (
        await _wait_for_failure(handle)
    ).message == f"the workflow ID of a session is session-NAME, not {unique_name!r}"


async def test_unknown_workflow_type_fails_with_a_suggestion(harness: SessionHarness, unique_name: str) -> None:
    handle = await harness.runs.start_raw({"plan": {}}, 2, workflow_id=unique_name, workflow="RunPlans")
    failure = await _wait_for_failure(handle)
    assert (failure.type, failure.non_retryable) == (wire.ERROR_UNKNOWN_TYPE, True)
    known_types = "CallLimit, PlanAndExecute, RunAgent, RunPlan, Session"
    assert failure.message == f"unknown workflow type 'RunPlans'; known types: {known_types}; did you mean 'RunPlan'?"


async def _wait_for_failure(handle: Handle) -> ApplicationError:
    with pytest.raises(WorkflowFailureError) as failure:
        await handle.result()
    assert isinstance(failure.value.cause, ApplicationError)
    return failure.value.cause


async def test_run_of_a_turn_has_title_template_and_tags_of_its_start(
    harness: SessionHarness, unique_name: str
) -> None:
    child_plan = {"plan": 1, "title": f"{unique_name} child", "nodes": [call_node("b", "echo", value=1)]}
    plan = {"plan": 1, "title": unique_name, "nodes": [{"id": "a", "plan": child_plan}]}

    async def prepare(_: SessionRecord) -> PreparedTurn:
        compiled = prepare_plan(check_plan(plan, harness.runs.tools), {})
        options = RunStartOptions(tags={"team": "blue", "env": "test"})
        start = StartRequest(compiled, plan, options=options, template="nightly")
        return PreparedTurn("Do it.", await harness.client_runs.encode(start))

    started_turn = await harness.sessions.start_turn(unique_name, prepare)
    await harness.wait_for_turn_end(unique_name, started_turn.run_id)
    expected: dict[str, dict[str, Any]] = {
        started_turn.run_id: {
            "DagwrightTitle": unique_name,
            "DagwrightTemplate": "nightly",
            "DagwrightTags": ["env=test", "team=blue"],
        },
        f"{started_turn.run_id}/a": {"DagwrightTitle": f"{unique_name} child"},
    }
    for run_id, attributes in expected.items():
        pairs = (await harness.client.get_workflow_handle(run_id).describe()).typed_search_attributes.search_attributes
        values = {pair.key.name: pair.value for pair in pairs if pair.key.name in _IDENTIFYING_ATTRIBUTES}
        assert {name: sorted(value) if isinstance(value, list) else value for name, value in values.items()} == {
            "DagwrightTags": ["env=test", "team=blue"],
            **attributes,
        }
    await harness.close(unique_name)


async def test_session_with_an_invalid_memo_fails(harness: SessionHarness, unique_name: str) -> None:
    handle = await _start_session(harness, unique_name, memo={wire.MEMO_SESSION_STATE: {"version": "x"}})
    assert (await _wait_for_failure(handle)).type == wire.ERROR_REJECTED
    with pytest.raises(SessionNotFound, match="cannot be read"):
        await harness.sessions.find(unique_name)


async def test_session_ends_after_its_turn_and_restarts_without_at_names(
    harness: SessionHarness, unique_name: str
) -> None:
    started_turn = await harness.sessions.start_turn(unique_name, harness.turn(*_fund_and_held_nodes(unique_name)))
    ended_session = await harness.close(unique_name)
    assert (await harness.sessions.find(unique_name)).to_json()["status"] == "ending"
    with pytest.raises(TurnRejected) as error:
        await harness.sessions.start_turn(unique_name, harness.turn(call_node("a", "echo", value=1)))
    assert error.value.code == "session_busy"
    harness.tool_harness.open(unique_name)
    result = await ended_session.result()
    assert (result["status"], result["turns"][0]["run_id"]) == ("ended", started_turn.run_id)
    assert (await harness.sessions.find(unique_name)).to_json()["status"] == "ended"
    assert (await harness.sessions.read(unique_name)).session.names == {}
    with pytest.raises(SessionNotFound, match="has ended already"):
        await harness.sessions.end(unique_name)
    new_turn = await harness.sessions.start_turn(unique_name, harness.turn(call_node("c", "echo", value="@cbu")))
    document = await document_of(harness.client.get_workflow_handle(new_turn.run_id))
    assert document["nodes"]["c"]["result"] == {"value": "@cbu"}
    await harness.wait_for_turn_end(unique_name, new_turn.run_id)
    await harness.close(unique_name)


async def test_client_rejects_a_run_with_the_id_of_a_session(harness: SessionHarness, unique_name: str) -> None:
    compiled = prepare_plan(check_plan({"nodes": [call_node("a", "echo", value=1)]}, harness.runs.tools), {})
    with pytest.raises(RunIdInvalid, match="starts with 'session-', which is reserved for sessions: choose another ID"):
        await harness.client_runs.start(StartRequest(compiled, run_id=session_workflow_id(unique_name)))
    # A Temporal client can start such a run.
    encoded_request = await harness.client_runs.encode(StartRequest(compiled))
    await harness.client.start_workflow(
        encoded_request.workflow,
        encoded_request.content,
        id=session_workflow_id(unique_name),
        task_queue=harness.runs.task_queue,
    )
    with pytest.raises(SessionNotFound, match="is a run, not a session"):
        await harness.sessions.read(unique_name)
    await harness.client.get_workflow_handle(session_workflow_id(unique_name)).result()


async def test_session_that_continues_as_new_between_turns_keeps_turns_and_at_names(
    harness: SessionHarness, unique_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DRAIN_AT_EVENTS", 14)
    execution_ids = []
    for number in range(4):
        started_turn = await harness.sessions.start_turn(
            unique_name, harness.turn(call_node("a", "name_fund", name=f"Fund {number}"), request=f"{number}")
        )
        session = await harness.wait_for_turn_end(unique_name, started_turn.run_id)
        execution_ids.append((await harness.sessions.find(unique_name)).execution_id)
    assert [turn.request for turn in session.turns] == ["0", "1", "2", "3"]
    assert session.names["cbu"]["id"] == "id-Fund 3"
    assert len(set(execution_ids)) > 1
    await _end_and_check_all_executions(harness, unique_name)
    # The replay needs the limit that this test has set.
    await harness.runs.check_runs()


async def test_terminated_turn_of_an_earlier_execution_fails(
    harness: SessionHarness, unique_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SUB_PLAN_CHECK_S", 0.5)
    started_turn = await _start_turn_and_continue_as_new(harness, unique_name, monkeypatch)
    await harness.client.get_workflow_handle(started_turn.run_id).terminate("gone")
    await _wait_until_idle(harness, unique_name)
    (turn,) = (await harness.sessions.find(unique_name)).session.turns
    assert (turn.status, turn.outcome) == ("failed", "terminated: the sub-plan was terminated")
    harness.tool_harness.open(unique_name)
    await harness.sessions.end(unique_name)


async def test_turn_of_an_earlier_execution_is_polled_only_until_its_end(
    harness: SessionHarness, unique_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The interval is longer than this test, so only the end of the turn stops the timer.
    monkeypatch.setattr(limits, "SUB_PLAN_CHECK_S", 600.0)
    started_turn = await _start_turn_and_continue_as_new(harness, unique_name, monkeypatch)
    session = (await harness.sessions.find(unique_name)).session
    assert (session.status, session.turns[0].run_id) == ("running", started_turn.run_id)

    async def has_timer() -> bool:
        return (await _count_events_by_kind(harness, unique_name))[EventType.EVENT_TYPE_TIMER_STARTED] == 1

    await eventually(has_timer)
    harness.tool_harness.open(unique_name)
    assert [*(await harness.wait_for_turn_end(unique_name, started_turn.run_id)).names] == ["cbu"]
    next_turn = await harness.sessions.start_turn(
        unique_name, harness.turn(call_node("c", "hold", name=f"{unique_name} 2"))
    )
    await eventually(lambda: f"{unique_name} 2" in harness.tool_harness.entered)
    counts = await _count_events_by_kind(harness, unique_name)
    assert (counts[EventType.EVENT_TYPE_TIMER_STARTED], counts[EventType.EVENT_TYPE_TIMER_CANCELED]) == (1, 1)
    harness.tool_harness.open(f"{unique_name} 2")
    await harness.wait_for_turn_end(unique_name, next_turn.run_id)
    await harness.sessions.end(unique_name)


async def _start_turn_and_continue_as_new(
    harness: SessionHarness, unique_name: str, monkeypatch: pytest.MonkeyPatch
) -> StartedRun:
    """Start a turn that sets `@cbu` and waits at a gate, and make the session continue as new during the turn."""
    started_turn = await harness.sessions.start_turn(unique_name, harness.turn(*_fund_and_held_nodes(unique_name)))
    first_execution_id = (await harness.sessions.find(unique_name)).execution_id
    await eventually(lambda: unique_name in harness.tool_harness.entered)
    # The signals exceed the limit, and have no effect on the turn.
    monkeypatch.setattr(limits, "DRAIN_AT_SIGNALS", 3)
    handle = harness.client.get_workflow_handle(session_workflow_id(unique_name))
    for _ in range(4):
        await handle.signal(wire.SIGNAL_TURN_ENDED, {})

    async def has_new_execution() -> bool:
        return (await harness.sessions.find(unique_name)).execution_id != first_execution_id

    await eventually(has_new_execution)
    monkeypatch.setattr(limits, "DRAIN_AT_SIGNALS", 8_000)
    return started_turn


async def _count_events_by_kind(harness: SessionHarness, session_name: str) -> "Counter[EventType.ValueType]":
    history = await harness.client.get_workflow_handle(session_workflow_id(session_name)).fetch_history()
    return Counter(event.event_type for event in history.events)


async def _end_and_check_all_executions(harness: SessionHarness, session_name: str) -> None:
    """End a session, and include all its executions in `check_runs`."""
    view = await harness.sessions.find(session_name)
    description = await harness.client.get_workflow_handle(view.workflow_id).describe()
    await harness.sessions.end(session_name)
    first_execution_id = description.raw_info.first_run_id
    harness.runs.include_in_checks(harness.client.get_workflow_handle(view.workflow_id, run_id=first_execution_id))


async def test_turn_without_a_worker_is_rejected_and_the_repeated_turn_starts_once(
    client: Client, tmp_path: Path, unique_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "TURN_TIMEOUT_S", 1.0)
    async with session_harness(client, tmp_path) as harness:
        prepare = harness.turn(call_node("a", "name_fund", name="Apex"))
        queue = harness.runs.task_queue
        unserved_sessions = sessions.Sessions(
            Connection(client, Server("nowhere", "default"), frozenset()),
            harness.client_runs,
            task_queue=f"{queue}-absent",
        )
        with pytest.raises(TurnRejected, match="no worker serves the session") as error:
            await unserved_sessions.start_turn(unique_name, prepare, run_id=f"{unique_name} run")
        assert error.value.code == "no_worker"
        await client.get_workflow_handle(session_workflow_id(unique_name)).terminate("the session has no worker")
        monkeypatch.setattr(sessions, "TURN_TIMEOUT_S", 60.0)
        started_turn = await harness.sessions.start_turn(unique_name, prepare, run_id=f"{unique_name} run")
        assert len((await harness.wait_for_turn_end(unique_name, started_turn.run_id)).turns) == 1
        await harness.close(unique_name)
