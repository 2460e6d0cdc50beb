"""What `why` tells of a node: who chose the parties that it was given."""

from dataclasses import replace
from typing import Any

from dagwright.core.model.states import Attempt, NodeStatus
from dagwright.core.scheduler.scheduler import Scheduler
from dagwright.features.explain.reasons import Reason
from dagwright.features.explain.why import Chain, what_holds
from dagwright.features.feedback.asking import Raised
from dagwright.history.explaining import Explanation
from dagwright.interfaces.cli.explaining import lines_of
from dagwright.plans.preparation import check_plan, prepare_plan
from tests.unit.cli.views import START, node, start_ready, view_of

_ANSWER = {"how": "answered", "by": "ann", "at": "2026-03-04T17:02:11Z", "through": "update", "note": None}


def test_party_is_told_with_its_text_and_who_chose_it() -> None:
    john = {"id": "person_1", "name": "John Smith", "kind": "person", "jurisdiction": "GB"}
    apex = {"id": "fund_1", "name": "Apex", "kind": "fund", "jurisdiction": None}
    asked = {"request": "lookup:person:J", "what": "selected", **_ANSWER}
    bound = [
        {"argument": "entity-id", "search_text": "J", "entity_type": "person", "party": john, "reason": "chosen by a "
        "person", "answers": [asked]},
        {"argument": "cbu-id", "search_text": "fund_1", "entity_type": "fund", "party": apex,
        "reason": "@cbu", "answers": []},
    ]  # fmt: skip
    reason = Reason("a", NodeStatus.COMPLETED, "completed", "completed", facts={"lookups": bound})
    lines = [*lines_of(Explanation(view_of(node("a")), "a", Chain([reason])))]
    assert [line.partition(" at ")[0] for line in lines[1:]] == [
        "  entity-id: 'J' (person) is John Smith (person, GB, person_1): chosen by a person",
        "    lookup:person:J: selected by ann",
        "  cbu-id: @cbu is Apex (fund, fund_1)",
    ]


def looking(text: str) -> dict[str, Any]:
    return {"verb": "pay", "params": {}, "refs": {}, "lookups": {"who": {"search_text": text, "entity_type": "person"}}}


def test_each_question_of_a_lookup_has_its_own_lines_with_options_and_command() -> None:
    plan = prepare_plan(check_plan({"intents": [looking("Ann"), looking("Bob")]}, {}, any_tool=True), {})
    scheduler = Scheduler(plan, {})
    scheduler.begin(START)
    start_ready(scheduler)
    options = [{"id": "p1", "label": "Ann Lee (person, GB)"}, {"id": "p2", "label": "Ann Lee (person, IE)"}]
    which = {"type": "SELECTION", "prompt": "Which Ann?", "options": options}
    assert scheduler.ask("lookup:person:Ann", Raised(which), at=START, attempt=Attempt(1)) is None
    assert scheduler.ask("lookup:person:Bob", Raised("Which Bob?"), at=START, attempt=Attempt(1)) is None
    view = replace(view_of(node("a")), scheduler=scheduler)
    told = Explanation(view, "", what_holds(scheduler, calls={}))
    assert [line.partition(" It is for")[0] for line in lines_of(told)] == [
        "run-1 is running",
        "lookup:person:Ann waits for anyone: Which Ann?",
        "  p1: Ann Lee (person, GB)",
        "  p2: Ann Lee (person, IE)",
        "  dagwright feedback run-1 lookup:person:Ann --select p1  (or another id)",
        "lookup:person:Bob waits for anyone: Which Bob?",
        "  dagwright feedback run-1 lookup:person:Bob --text 'TEXT'",
    ]


def test_why_a_run_is_where_it_is_tells_who_was_bound() -> None:
    plan = prepare_plan(check_plan({"intents": [looking("Ann")]}, {}, any_tool=True), {})
    scheduler = Scheduler(plan, {})
    scheduler.begin(START)
    ann = {"party": {"id": "p1", "name": "Ann Lee", "kind": "person", "jurisdiction": "GB"}, "reason": "exact name"}
    for result in (ann, [ann]):
        task = scheduler.next_task(START)
        assert task is not None
        scheduler.complete(task.id, result, at=START)
    start_ready(scheduler)
    told = Explanation(replace(view_of(node("a")), scheduler=scheduler), "", what_holds(scheduler, calls={}))
    assert [*lines_of(told)][-1] == "'Ann' is Ann Lee (person, GB, p1): exact name"
