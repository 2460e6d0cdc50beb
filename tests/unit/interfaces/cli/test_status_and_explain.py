"""The nodes that `status` lists, and the lines of `explain`."""

from dataclasses import replace
from typing import Any

from dagwright.core.model.requests import RaisedQuestion
from dagwright.core.model.states import Attempt, NodeStatus
from dagwright.features.explain.reasons import Reason
from dagwright.features.explain.why import Chain, blocking_chain
from dagwright.features.run_scheduler import RunScheduler, create_scheduler
from dagwright.history.run_explainer import RunExplanation
from dagwright.interfaces.cli.explain_command import explanation_lines
from dagwright.interfaces.cli.show_commands import with_starting_worker
from dagwright.interfaces.cli.status_rows import status_rows
from dagwright.plans.preparation import check_plan, prepare_plan
from tests.support.plan_building import node
from tests.unit.interfaces.cli.views import START, start_all_ready_tasks, view_of


def _nodes(count: int) -> dict[str, Any]:
    statuses = {3: "failed", 7: "running", 8: "blocked"}
    items = {f"order[{number}]": {"status": statuses.get(number, "completed")} for number in range(count)}
    return {"order": {"status": "running"}, **items, "sum": {"status": "pending"}}


def _node_of(name: str) -> str:
    return name.partition("[")[0]


def test_large_map_shows_counts_and_open_or_failed_items() -> None:
    rows = status_rows(_nodes(300), _node_of, lists_all_items=False)
    assert rows.count_lines == ["order: 300 items: 1 blocked, 1 failed, 1 running, 297 completed"]
    assert (rows.task_ids, rows.omitted_count) == (["order", "order[3]", "order[7]", "order[8]", "sum"], 297)
    for nodes, lists_all_items in ((_nodes(20), False), (_nodes(300), True)):
        rows = status_rows(nodes, _node_of, lists_all_items=lists_all_items)
        assert (rows.count_lines, rows.task_ids, rows.omitted_count) == ([], [*nodes], 0)


def test_starting_worker_is_not_reported_as_missing() -> None:
    waiting_node = {"status": "waiting", "reason": "no worker for mail"}
    nodes = {"a": waiting_node, "b": {"status": "pending", "reason": None}}
    notes = [{"code": code, "node_id": None, "message": "a note"} for code in ("no_worker", "other")]
    updated_document = with_starting_worker({"nodes": nodes, "notes": notes})
    message = "the worker in the background is starting"
    assert [node["reason"] for node in updated_document["nodes"].values()] == [message, None]
    updated_notes = [(note["code"], note["message"]) for note in updated_document["notes"]]
    assert updated_notes == [("other", "a note"), ("worker_starting", message)]


_ANSWER = {"outcome": "answered", "by": "ann", "at": "2026-03-04T17:02:11Z", "source": "update", "note": None}


def _party(id: str, name: str, kind: str, jurisdiction: str | None) -> dict[str, Any]:
    return {"id": id, "name": name, "kind": kind, "jurisdiction": jurisdiction}


def _bound_argument(argument: str, text: str, entity_type: str, **fields: Any) -> dict[str, Any]:
    return {"argument": argument, "search_text": text, "entity_type": entity_type, "answers": [], **fields}


def test_party_is_shown_with_its_search_text_and_the_person_who_chose_it() -> None:
    john, apex = _party("person_1", "John Smith", "person", "GB"), _party("fund_1", "Apex", "fund", None)
    answer = {"request_id": "lookup:person:J", "answer": "selected", **_ANSWER}
    lookups = [
        _bound_argument("entity-id", "J", "person", entity=john, reason="chosen by a person", answers=[answer]),
        _bound_argument("cbu-id", "fund_1", "fund", entity=apex, reason="@cbu"),
    ]
    reason = Reason("a", NodeStatus.COMPLETED, "completed", "completed", facts={"lookups": lookups})
    lines = [*explanation_lines(RunExplanation(view_of(node("a")), "a", Chain([reason])))]
    assert [line.partition(" at ")[0] for line in lines[1:]] == [
        "  entity-id: 'J' (person) is John Smith (person, GB, person_1): chosen by a person",
        "    lookup:person:J: selected by ann",
        "  cbu-id: @cbu is Apex (fund, fund_1)",
    ]


def lookup_intent(text: str) -> dict[str, Any]:
    return {"verb": "pay", "params": {}, "refs": {}, "lookups": {"who": {"search_text": text, "entity_type": "person"}}}


def _run_of(*texts: str) -> RunScheduler:
    plan = prepare_plan(check_plan({"intents": [*map(lookup_intent, texts)]}, {}, allow_unknown_tools=True), {})
    scheduler = create_scheduler(plan, {})
    scheduler.start(START)
    return scheduler


def _explanation_lines(scheduler: RunScheduler) -> list[str]:
    view = replace(view_of(node("a")), scheduler=scheduler)
    return [*explanation_lines(RunExplanation(view, "", blocking_chain(scheduler, calls={})))]


def test_each_request_of_a_lookup_has_its_options_and_command() -> None:
    scheduler = _run_of("Ann", "Bob")
    start_all_ready_tasks(scheduler)
    options = [{"id": "p1", "label": "Ann Lee (person, GB)"}, {"id": "p2", "label": "Ann Lee (person, IE)"}]
    question = {"type": "SELECTION", "prompt": "Which Ann?", "options": options}
    feedback = scheduler.features.feedback
    for name, raised_question in (("Ann", RaisedQuestion(question)), ("Bob", RaisedQuestion("Which Bob?"))):
        assert feedback.ask(f"lookup:person:{name}", raised_question, at=START, attempt=Attempt(1)) is None
    assert [line.partition(" It is for")[0] for line in _explanation_lines(scheduler)] == [
        "run-1 is running",
        "lookup:person:Ann waits for anyone: Which Ann?",
        "  p1: Ann Lee (person, GB)",
        "  p2: Ann Lee (person, IE)",
        "  dagwright feedback run-1 lookup:person:Ann --select p1  (or another id)",
        "lookup:person:Bob waits for anyone: Which Bob?",
        "  dagwright feedback run-1 lookup:person:Bob --text 'TEXT'",
    ]


def test_explain_of_a_run_lists_the_bound_parties() -> None:
    scheduler = _run_of("Ann")
    lookup_result = {"entity": _party("p1", "Ann Lee", "person", "GB"), "reason": "exact name"}
    for result in (lookup_result, [lookup_result]):
        task = scheduler.next_task(START)
        assert task is not None
        scheduler.complete(task.id, result, at=START)
    start_all_ready_tasks(scheduler)
    assert _explanation_lines(scheduler)[-1] == "'Ann' is Ann Lee (person, GB, p1): exact name"
