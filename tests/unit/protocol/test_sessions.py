"""State of a session without a server: turns, names, resolved lookups and limits."""

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagwright.core.expressions.stored_values import ProjectedPart, Shape, StoredValue
from dagwright.core.expressions.value_refs import encoded_size
from dagwright.core.model.compiled import CompiledNode, CompiledPlan
from dagwright.core.model.policy import policy_from_json
from dagwright.core.model.states import Phase
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.features.run_scheduler import RunScheduler, create_scheduler
from dagwright.planning.context_names import context_names_of, identity_of, is_context_name
from dagwright.planning.conversation import turns_from_json
from dagwright.protocol.messages import MessageInvalid, ParentSession
from dagwright.protocol.run_input import RunInput, run_input_from_json, run_input_to_json
from dagwright.protocol.sessions import (
    SessionIdInvalid,
    SessionRecord,
    normalized_session_name,
    session_from_json,
    session_workflow_id,
)
from dagwright.protocol.turn_summaries import CUT_MARK, MAX_OLDER_RESPONSE_BYTES, cut_middle
from dagwright.protocol.turns import TurnEnd, TurnStart, end_of_turn, turn_end_from_json, turn_start_from_json
from tests.support.plan_building import started_scheduler

FUND = {"id": "CBU-1", "name": "Apex", "kind": "fund"}
JOHN = {"search_text": "John Smith", "entity_type": "person", "entity": {"id": "P-1", "name": "John Smith"}}
SHAPE = Shape("text", 50_000, 49_998, "It begins so")
_EFFECTS = {"make": Effects.IDEMPOTENT, "look": Effects.READ, "undo": Effects.IDEMPOTENT}


def _turn_start(run_id: str = "r", **fields: Any) -> TurnStart:
    return TurnStart(run_id, {"goal": "Do it."}, "Do it.", **fields)


def _complete_turn(session: SessionRecord, run_id: str = "r", **end: Any) -> None:
    assert session.start_turn(_turn_start(run_id), at=1.0)
    assert session.end_turn(run_id, TurnEnd(end.pop("status", "completed"), **end), at=2.0)


def _reload(end: TurnEnd) -> TurnEnd:
    return turn_end_from_json(json.loads(json.dumps(end.to_json())))


def _completed_run(plan: CompiledPlan, result_of_task: Callable[[str], Any]) -> RunScheduler:
    """Return a run in which every task has completed. `result_of_task` maps a task ID to a result."""
    scheduler = started_scheduler(plan)
    while (task := scheduler.next_task(1.0)) is not None:
        scheduler.complete(task.id, result_of_task(task.id), at=2.0)
    return scheduler


def _rejection_code(session: SessionRecord, start: TurnStart) -> str | None:
    rejection = session.rejection_of(start)
    return None if rejection is None else rejection.code


def test_turn_starts_once_and_only_for_the_current_version_of_the_session() -> None:
    session = SessionRecord("s")
    assert _rejection_code(session, _turn_start()) is None
    assert session.start_turn(_turn_start(), at=1.0)
    assert (session.status, session.version) == ("running", 1)
    assert not session.start_turn(_turn_start(), at=1.5)
    assert _rejection_code(session, _turn_start()) is None
    assert _rejection_code(session, _turn_start("second")) == "session_busy"
    rejection = session.rejection_of(_turn_start("second"))
    assert rejection is not None
    assert (rejection.run_id, "'r'" in rejection.message) == ("r", True)
    assert not session.end_turn("second", TurnEnd("completed"), at=2.0)
    assert session.end_turn("r", TurnEnd("completed"), at=2.0)
    assert not session.end_turn("r", TurnEnd("failed"), at=3.0)
    assert (session.status, session.version, session.turns[0].status) == ("idle", 2, "completed")
    assert _rejection_code(session, _turn_start()) is None
    session = SessionRecord("s")
    assert _rejection_code(session, _turn_start(version=1)) == "session_changed"
    assert _rejection_code(session, _turn_start(version=0)) is None
    _complete_turn(session)
    assert _rejection_code(session, _turn_start("b", version=0)) == "session_changed"
    assert _rejection_code(session, _turn_start("b", version=2)) is None
    assert _rejection_code(session, _turn_start("b")) is None


def test_running_turn_can_be_dropped() -> None:
    session = SessionRecord("s")
    _complete_turn(session)
    session.start_turn(_turn_start("second"), at=3.0)
    session.drop_turn("r")
    assert session.running_turn is not None
    session.drop_turn("second")
    assert ([turn.run_id for turn in session.turns], session.status, session.version) == (["r"], "idle", 4)
    session.drop_turn("r")
    assert (_rejection_code(session, _turn_start("next", version=3)), session.version) == ("session_changed", 4)


def test_ending_session_waits_for_its_running_turn() -> None:
    session = SessionRecord("s")
    session.start_turn(_turn_start(), at=1.0)
    session.end()
    assert (session.status, session.has_ended) == ("ending", False)
    assert _rejection_code(session, _turn_start("b")) == "session_ending"
    session.end_turn("r", TurnEnd("cancelled"), at=2.0)
    assert (session.status, session.has_ended) == ("ended", True)
    assert SessionRecord("t", is_ending=True).has_ended


def test_session_keeps_the_newest_names_and_clears_resolved_lookups_when_a_lookup_fails() -> None:
    session = SessionRecord("s")
    renewed_lookup: dict[str, Any] = {**JOHN, "entity": {"id": "P-2"}}
    lookup_in_jurisdiction = {**JOHN, "jurisdiction": "LU", "entity": {"id": "P-3"}}
    _complete_turn(session, "a", names={"cbu": FUND, "fund": FUND}, resolved_lookups=[JOHN])
    new_lookups, new_cbu = [renewed_lookup, lookup_in_jurisdiction], {**FUND, "id": "CBU-2"}
    _complete_turn(session, "b", names={"cbu": new_cbu}, resolved_lookups=new_lookups)
    assert [*session.names.items()] == [("fund", FUND), ("cbu", new_cbu)]
    assert session.resolved_lookups == new_lookups
    session = SessionRecord("s")
    _complete_turn(session, "a", names={"cbu": FUND}, resolved_lookups=[JOHN])
    failed_end = end_of_turn({"status": "failed", "error": {"code": "lookup_not_found", "message": "gone"}})
    session.start_turn(_turn_start("b"), at=3.0)
    session.end_turn("b", turn_end_from_json(failed_end.to_json()), at=4.0)
    assert (session.resolved_lookups, [*session.names]) == ([], ["cbu"])


def test_run_of_a_turn_has_the_context_and_policy_of_its_session() -> None:
    session = SessionRecord("s")
    _complete_turn(session, names={"cbu": FUND}, resolved_lookups=[JOHN])
    session.policy = policy_from_json({"changes_need_plan_approval": True})
    assert session.input_of_turn(TurnStart("b", {"plan": {}}), workflow_id="session-s") == {
        "plan": {},
        "context": {"cbu": FUND},
        "known_entities": [JOHN],
        "session": {"session_workflow_id": "session-s", "turn": "b"},
        "options": {"policy": session.policy.to_json()},
    }
    start_with_options = {"compiled": {}, "options": {"policy": {}, "deadline": "2h"}, "context": {}}
    input_with_options = session.input_of_turn(TurnStart("b", start_with_options), workflow_id="session-s")
    assert (input_with_options["options"], input_with_options["context"]) == (start_with_options["options"], {})
    other_session = SessionRecord("s")
    other_session.start_turn(_turn_start(policy=session.policy), at=1.0)
    other_session.end_turn("r", TurnEnd("completed"), at=2.0)
    other_session.start_turn(_turn_start("b"), at=3.0)
    assert other_session.policy == session.policy


def test_turn_texts_describe_the_request_plan_names_and_result_of_ended_turns() -> None:
    session = SessionRecord("s")
    _complete_turn(session, "a", explanation="Makes a fund.", names={"cbu": FUND})
    _complete_turn(session, "b", outcome="'x' failed: no")
    session.start_turn(_turn_start("c"), at=5.0)
    assert session.turn_texts() == [
        "Request: Do it.\nPlan: Makes a fund.\nIt set @cbu (Apex).\nResult: completed",
        "Request: Do it.\nResult: completed: 'x' failed: no",
    ]


_CLARIFICATION = "I found several companies:\n\n1. Acme Corp LLC\n2. Acme Co\n\nWhich one did you mean?"


def test_next_turn_receives_the_complete_clarification_question() -> None:
    session, request = SessionRecord("s"), "Show shipments from Acme Corp to Houston"
    session.start_turn(TurnStart("a", {}, request), at=1.0)
    session.end_turn("a", _reload(end_of_turn({"status": "completed", "output": _CLARIFICATION})), at=2.0)
    entries = [summary.to_json() for summary in session.turn_summaries()]
    assert entries == [{"turn_id": 1, "human_message": request, "ai_response": _CLARIFICATION}]
    assert [turn.to_json() for turn in turns_from_json(entries)] == entries
    assert session.turn_texts() == [f"Request: {request}\nResult: completed: {_CLARIFICATION}"]


def test_response_is_complete_until_the_next_response_and_is_then_shortened() -> None:
    session, text = SessionRecord("s"), "row\n" * 1_600 + "\nWhich one did you mean?"
    _complete_turn(session, "a", response=text)
    assert session.turns[0].answer == text
    _complete_turn(session, "b", response="Short.", outcome="Short.")
    assert session.turn_summaries()[1].ai_response == "Short."
    shortened_response = session.turn_summaries()[0].ai_response
    first_part, last_part = shortened_response.split(CUT_MARK)
    assert first_part.startswith("row\nrow\n")
    assert last_part.endswith("Which one did you mean?")
    assert encoded_size(shortened_response) <= MAX_OLDER_RESPONSE_BYTES


def test_summary_of_a_turn_without_a_response_has_the_outcome_of_the_turn() -> None:
    session = SessionRecord("s")
    _complete_turn(session, "a", status="failed", outcome="max_rounds: no answer")
    _complete_turn(session, "b", status="cancelled")
    session.start_turn(_turn_start("c"), at=3.0)
    assert [turn.ai_response for turn in session.turn_summaries()] == ["(failed: max_rounds: no answer)", "(cancelled)"]


def test_response_of_a_stored_result_starts_with_its_loaded_part_or_preview() -> None:
    whole_part, large_part = ProjectedPart("whole", "a" * 30_000, SHAPE), ProjectedPart("large", shape=SHAPE)
    for result, expected in ((whole_part, "a"), (large_part, "It begins so\n")):
        response = end_of_turn({"status": "completed", "output": StoredValue("ref", parts={(): result})}).response
        assert response is not None
        assert response.startswith(expected)
        assert CUT_MARK.strip() in response
    assert end_of_turn({"status": "completed", "output": StoredValue("ref")}).response is None


def test_turn_with_a_stored_response_keeps_the_reference() -> None:
    output = StoredValue("ref", name="answer.result", paths=(("message", "content"),), shape=SHAPE)
    end = _reload(end_of_turn({"status": "completed", "output": output}))
    response_ref = {"ref": "ref", "paths": [["message", "content"]]}
    assert (end.response_ref, end.outcome) == (response_ref, "It begins so [… cut here …]")
    session = SessionRecord("s")
    session.start_turn(_turn_start("a"), at=1.0)
    session.end_turn("a", end, at=2.0)
    _complete_turn(session, "b", response="Short.")
    assert session_from_json(json.loads(json.dumps(session.to_json())), name="s") == session
    rows = "row\n" * 10_000
    hydrated_session = session.with_answers({"a": rows, "unknown": "ignored"})
    assert [turn.answer for turn in hydrated_session.turns] == [rows, "Short."]
    older_turn, newest_turn = hydrated_session.with_shortened_answers().turn_summaries()
    assert encoded_size(older_turn.ai_response) <= MAX_OLDER_RESPONSE_BYTES
    assert CUT_MARK in older_turn.ai_response
    assert newest_turn.ai_response == "Short."
    assert session.turns[0].response == f"It begins so{CUT_MARK}".strip()
    output_with_a_long_path = StoredValue("ref", paths=(("x" * 2_000,),), shape=SHAPE)
    assert end_of_turn({"status": "completed", "output": output_with_a_long_path}).response_ref is None
    for invalid_ref in (None, 7, {}, {"ref": 7}, {"ref": "r", "paths": 3}, {"ref": "r", "paths": [{}]}, ["ref"]):
        assert turn_end_from_json({"status": "completed", "response_ref": invalid_ref}).response_ref is None


@settings(deadline=None)
@given(st.text(), st.integers(min_value=100, max_value=3_000))
def test_cut_text_is_within_the_limit_and_marked(text: str, limit_bytes: int) -> None:
    cut_text = cut_middle(text * 50, max_bytes=limit_bytes)
    assert encoded_size(cut_text) <= limit_bytes
    if cut_text != (text * 50).encode(errors="replace").decode():
        assert CUT_MARK in cut_text


@pytest.mark.parametrize("character", ["\x01", "日"])
def test_state_of_hundreds_of_turns_is_bounded_and_omitted_turns_are_counted(character: str) -> None:
    session = SessionRecord("s")
    long_text = "ä" * 200
    for number in range(300):
        session.start_turn(TurnStart(f"run-{number}", {}, long_text), at=number)
        end = TurnEnd(
            "completed",
            outcome=long_text,
            response=character * 30_000,
            response_ref={"ref": f"v1/{'a' * 64}", "paths": [["message", "content"]]},
            explanation=long_text,
            names={f"n{number}": {**FUND, "name": long_text}},
            resolved_lookups=[{**JOHN, "search_text": f"{number} {long_text}"}],
        )
        session.end_turn(f"run-{number}", turn_end_from_json(end.to_json()), at=number)
        if number % 10 == 9:
            assert len(json.dumps(session.to_json(), ensure_ascii=False).encode()) < 50_000
    newest_turn = session.turns[-1]
    assert [turn.response is not None for turn in session.turns[-3:]] == [True, True, True]
    assert (newest_turn.number, newest_turn.run_id, session.omitted_turns + len(session.turns)) == (300, "run-299", 300)
    assert "n299" in session.names
    assert session.resolved_lookups[-1]["search_text"].startswith("299 ")


_TEXT = st.text(max_size=300)
_NAMES = st.dictionaries(st.from_regex(r"[a-z]{1,9}", fullmatch=True), st.just(FUND), max_size=9)
_ENDS = st.builds(
    TurnEnd,
    st.sampled_from(["completed", "failed", "cancelled", "completed_with_failures"]),
    names=_NAMES,
    response=st.none() | st.text(max_size=4_000),
    response_ref=st.none() | st.just({"ref": "r", "paths": [["a", 0]]}),
    resolved_lookups=st.lists(st.builds(lambda text: {**JOHN, "search_text": text}, _TEXT), max_size=5),
)


@settings(deadline=None)
@given(ends=st.lists(_ENDS, max_size=30), is_turn_running=st.booleans(), is_ending=st.booleans())
def test_session_survives_serialization_after_any_turns(
    *, ends: list[TurnEnd], is_turn_running: bool, is_ending: bool
) -> None:
    session = SessionRecord("s")
    for number, end in enumerate(ends):
        session.start_turn(_turn_start(f"r{number}"), at=number)
        session.end_turn(f"r{number}", turn_end_from_json(end.to_json()), at=number)
    if is_turn_running:
        session.start_turn(_turn_start("running"), at=99.0)
    if is_ending:
        session.end()
    assert session_from_json(json.loads(json.dumps(session.to_json())), name="s") == session


@pytest.mark.parametrize("state", [None, 3, [], {}, {"version": 1}, {"version": "x", "context": {}, "lookups": []}])
def test_invalid_state_is_rejected(state: Any) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the message is only for debugging
        session_from_json(state, name="s")


_KEYS = st.sampled_from(["run_id", "start", "request", "version", "memo", "policy", "status", "names", "bindings", "x"])
_MESSAGES = st.recursive(
    st.none() | st.booleans() | st.integers() | _TEXT, lambda inner: st.lists(inner) | st.dictionaries(_KEYS, inner)
)


@settings(deadline=None)
@given(_MESSAGES)
def test_any_turn_message_is_decoded_or_rejected(message: Any) -> None:
    for decode in (turn_start_from_json, turn_end_from_json):
        for candidate in (message, {"start": message, "run_id": "r"}, {"status": "completed", "names": message}):
            with suppress(MessageInvalid):
                decode(candidate)


def test_start_message_determines_the_workflow_and_the_request() -> None:
    start = turn_start_from_json({"run_id": "r", "start": {"goal": "  Do\n it. "}})
    assert (start.workflow, start.request, start.version) == ("PlanAndExecute", "Do it.", None)
    assert turn_start_from_json(start.to_json()) == start
    assert turn_start_from_json({"run_id": "r", "start": {"plan": {}}}).workflow == "RunPlan"
    for field, expected in (("version", "the number of a version"), ("memo", "an object")):
        with pytest.raises(MessageInvalid, match=f"'{field}' must be {expected}"):
            turn_start_from_json({"run_id": "r", "start": {}, field: "1"})
    rules = [{"tool": f"a long name of a tool, {number}", "then": "ask"} for number in range(100)]
    with pytest.raises(MessageInvalid, match="the policy has") as error:
        turn_start_from_json({"run_id": "r", "start": {}, "policy": {"rules": rules}})
    assert error.value.code == "too_large"


@pytest.mark.parametrize(
    ("result", "identity"),
    [
        (FUND, FUND),
        ({"id": 7}, {"id": "7", "name": None, "kind": None}),
        ("CBU-1", {"id": "CBU-1", "name": None, "kind": None}),
        ({"id": "a", "name": " A\n b ", "kind": 3}, {"id": "a", "name": "A b", "kind": None}),
        *((invalid, None) for invalid in ({"name": "x"}, {"id": True}, {"id": ""}, {"id": "x" * 301}, [1], None)),
    ],
)
def test_identity_of_a_result_has_its_id_name_and_kind(result: Any, identity: Any) -> None:
    assert identity_of(result) == identity


def test_context_name_has_up_to_80_characters_and_does_not_start_with_result() -> None:
    names = ("cbu", "_a.b-c", "Result_1", "1a", "", "x" * 81, "a b", 3)
    assert [name for name in names if is_context_name(name)] == ["cbu", "_a.b-c"]


def test_context_names_are_set_by_calls_that_are_not_compensated() -> None:
    make_tool = ToolDeclaration("make", Effects.IDEMPOTENT, undo="undo", sets="cbu")
    nodes = (*(CompiledNode(name, tool="make") for name in "abc"), CompiledNode("~c", tool="undo", compensates="c"))
    plan = CompiledPlan(nodes, {"make": make_tool, "undo": ToolDeclaration("undo")})
    names = context_names_of(_completed_run(plan, lambda task_id: {"id": task_id}))
    assert names == {"cbu": {"id": "b", "name": None, "kind": None}}


def test_outcome_describes_results_without_their_ids() -> None:
    fund = {"id": "fund_1", "kind": "fund", "name": "Apex", "client_type": "fund", "manco_id": "c_1", "created": True}
    results: dict[str, Any] = {
        "a": fund,
        "b": {"id": None, "cbu_id": "fund_1", "cbuId": "fund_1", "product": "CUSTODY", "removed": False},
        "c": {"id": "x", "name": "Bird", "created": False, "note": "long " * 40},
        "d": [1],
        "look": {"name": "Only looked at"},
        "e": {"name": "Compensated"},
    }
    nodes = (
        *(CompiledNode(name, tool="look" if name == "look" else "make") for name in results),
        CompiledNode("~e", tool="undo", compensates="e"),
    )
    tools = {name: ToolDeclaration(name, effects) for name, effects in _EFFECTS.items()}
    scheduler = _completed_run(CompiledPlan(nodes, tools), results.get)
    expected = "make: fund, Apex; make: CUSTODY (did not exist); make: Bird (existed already); make"
    assert end_of_turn({"status": "completed", "output": {}}, scheduler).outcome == expected
    assert end_of_turn({"status": "completed", "output": "Done."}, scheduler).outcome == "Done."
    failed_nodes = {"x": {"status": "failed", "error": {"message": "no"}}}
    outcome = end_of_turn({"status": "failed", "nodes": failed_nodes}, scheduler).outcome
    assert outcome == f"'x' failed: no; done: {expected}"
    large_plan = CompiledPlan(tuple(CompiledNode(f"n{number}", tool="make") for number in range(20)), tools)
    large_run = _completed_run(large_plan, lambda name: {"name": name})
    outcome = end_of_turn({"status": "completed", "output": {}}, large_run).outcome or ""
    assert (outcome.startswith("make: n0; make: n1; "), outcome.endswith("make: n11; and 8 more")) == (True, True)


def test_outcome_of_a_run_is_its_output_or_error() -> None:
    nodes = {f"n{number}": {"status": "failed", "error": {"message": "no"}} for number in range(5)}
    outcomes: dict[str | None, dict[str, Any]] = {
        "It is 7.": {"status": "completed", "output": "It is\n7."},
        None: {"status": "completed", "output": {"a": 1}},
        "'n0' failed: no; 'n1' failed: no; 'n2' failed: no; and 2 more": {"status": "failed", "nodes": nodes},
        "too_large: it is": {"status": "failed", "error": {"code": "too_large", "message": "it is"}},
    }
    assert [end_of_turn(document).outcome for document in outcomes.values()] == [*outcomes]
    assert end_of_turn({"error": {"code": "message"}, "message": "no", "status": "odd"}).status == "failed"
    end = end_of_turn({"status": "completed", "context": {"cbu": FUND}, "lookups": [JOHN, 3]})
    assert end.resolved_lookups == [JOHN]


def test_lookup_of_an_entity_that_a_compensated_run_created_is_dropped() -> None:
    created_lookup = {**JOHN, "search_text": "Jane", "created": True}
    document = {"status": "failed", "lookups": [{**JOHN, "created": False}, created_lookup]}
    scheduler = create_scheduler(CompiledPlan(()), {})
    lookups = end_of_turn(document, scheduler).resolved_lookups
    assert [lookup["search_text"] for lookup in lookups] == ["John Smith", "Jane"]
    scheduler.state.phase = Phase.COMPENSATING
    lookups = end_of_turn(document, scheduler).resolved_lookups
    assert [lookup["search_text"] for lookup in lookups] == ["John Smith"]


@pytest.mark.parametrize("name", ["", "  ", "x" * 151, "ä" * 76, "a\nb", "a\u202eb", "a\u200bb", "a\ud800"])
def test_empty_too_long_or_unprintable_session_name_is_rejected(name: str) -> None:
    with pytest.raises(SessionIdInvalid) as error:
        normalized_session_name(name)
    mentions_the_size = "it must be 1-150 bytes of UTF-8" in str(error.value)
    assert mentions_the_size == (not name.strip() or len(name) > 75)
    assert normalized_session_name("  Cafe\u0301 / 'x' 日本  ") == "Café / 'x' 日本"
    assert session_workflow_id("a/b") == "session-a/b"


def test_run_input_has_the_session_and_turn() -> None:
    run_input = RunInput(plan={"nodes": []}, session=ParentSession("session-s", "r"))
    assert run_input_from_json(run_input_to_json(run_input)).session == ParentSession("session-s", "r")
    for invalid_session in (
        3,
        {},
        {"session_workflow_id": "", "turn": "r"},
        {"session_workflow_id": "x" * 1001, "turn": "r"},
    ):
        with pytest.raises(MessageInvalid, match="'session' must have"):
            run_input_from_json({"plan": {}, "session": invalid_session})
