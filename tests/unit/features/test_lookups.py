"""Lookups as nodes: the added nodes, the nodes that wait for lookups, the searched kinds, and problem locations."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from dagwright.client.feedback.feedback_client import following_request
from dagwright.core.compiler.compilation import compile_plan
from dagwright.core.compiler.plan_text import plan_summary
from dagwright.core.errors import PlanInvalid, Problem
from dagwright.core.expressions.references import Lookup
from dagwright.core.model.actor import UNKNOWN_ACTOR
from dagwright.core.model.compiled import CompiledNode, CompiledPlan, plan_from_json, plan_to_json
from dagwright.core.model.json_schemas import ENTITY_KEYWORD
from dagwright.core.model.lookups import KNOWN_BEFORE, MAX_LOOKUPS, KnownEntities, known_result, resolved_lookups
from dagwright.core.model.policy import Policy, Rule
from dagwright.core.model.requests import RaisedQuestion, Request
from dagwright.core.model.states import Attempt, NodeError, NodeStatus, RunStatus, Task
from dagwright.core.model.tools import ToolDeclaration
from dagwright.core.scheduler.component import RunOptions
from dagwright.core.scheduler.extension import Extension
from dagwright.core.scheduler.run_state import counts_of
from dagwright.core.validation.validation import check_document
from dagwright.dialects import to_document
from dagwright.features.explain.reasons import reason_of
from dagwright.features.explain.why import blocking_chain
from dagwright.features.lookups.entity_resolver import EntityResolver
from dagwright.features.lookups.positions import lookup_errors
from dagwright.features.plan_edits.node_additions import add_nodes
from dagwright.features.run_scheduler import RunScheduler
from dagwright.history.run_view import RunView
from dagwright.plans.preparation import check_plan, prepare_plan
from dagwright_onboarding.entity_types import RESOLVER
from dagwright_onboarding.onboarding import onboarding_tools
from tests.support.plan_building import (
    answer_request,
    open_requests,
    raise_question,
    restored_scheduler,
    start_ready_tasks,
    started_scheduler,
)


def lookup_of(text: str, entity_type: str = "person", **fields: Any) -> dict[str, Any]:
    return {"search_text": text, "entity_type": entity_type, **fields}


def intent(refs: dict[str, str] | None = None, **lookups: Any) -> dict[str, Any]:
    return {"verb": "pay", "params": {}, "refs": refs or {}, "lookups": lookups}


def compiled_plan(raw_plan: Any) -> CompiledPlan:
    return prepare_plan(check_plan(raw_plan, RESOLVER.tools(), allow_unknown_tools=True), {})


def plan_of(*intents: Any) -> CompiledPlan:
    return compiled_plan({"intents": list(intents)})


def added_node_ids(plan: CompiledPlan) -> list[str]:
    return [node.id for node in plan.nodes[plan.visible_count :]]


def bound_party(party_id: str, *, created: bool = False, **fields: Any) -> dict[str, Any]:
    """Return the result of `bind_parties` for one party."""
    return {"entity": {"id": party_id, **fields}, "reason": "", "created": created}


def start_plan(plan: CompiledPlan, **options: Any) -> tuple[RunScheduler, list[Task]]:
    """Return the started scheduler of a run, and its ready tasks."""
    run_options = RunOptions(resolver=EntityResolver(RESOLVER, None), **options)
    scheduler = started_scheduler(plan, options=run_options)
    return scheduler, start_ready_tasks(scheduler)


def test_each_distinct_lookup_is_one_node_after_the_nodes_of_the_plan() -> None:
    plan = plan_of(
        intent(a=lookup_of("Ann"), b=lookup_of("Bob")),
        intent(
            {"x": "@result_1"}, c=lookup_of("Ann"), d=lookup_of("Ann", "entity"), e=lookup_of("Ann", jurisdiction="lu")
        ),
        intent(f=lookup_of("  Ann ", "Natural Person")),
    )
    assert plan.visible_count == 3
    ids = ["lookup:person:Ann", "lookup:person:Bob", "lookup:entity:Ann", "lookup:person:Ann:LU"]
    assert added_node_ids(plan)[:-1] == [*ids, "lookup:natural-person:Ann"]
    bind_node = plan.nodes[-1]
    assert (bind_node.tool, bind_node.dependencies) == (RESOLVER.bind, (3, 4, 5, 6, 7))
    assert [node.dependencies for node in plan.nodes[:3]] == [(8,), (0, 8), (8,)]
    assert plan_from_json(plan_to_json(plan)) == plan


PAY_TOOL = ToolDeclaration(
    "pay",
    input_schema={
        "type": "object",
        "properties": {
            "cbu_id": {"type": "string", ENTITY_KEYWORD: ["company", "fund"]},
            "fund_id": {"type": "string", ENTITY_KEYWORD: ["fund"]},
            "note": {"type": "string"},
        },
    },
)


def pay_plan(*intents: dict[str, Any], tool: ToolDeclaration = PAY_TOOL) -> CompiledPlan:
    """Return a plan of payments. In its session, `@cbu` is a fund."""
    tools = {"pay": tool, **RESOLVER.tools()}
    return prepare_plan(check_plan({"intents": list(intents)}, tools, context={"cbu": "fund_1"}), {})


def test_party_of_the_session_is_fetched_by_id_with_the_lookups() -> None:
    plan = pay_plan(intent({"cbu-id": "@cbu", "fund_id": "@cbu", "note": "@cbu"}), intent({"cbu_id": "@cbu"}))
    assert added_node_ids(plan)[:-1] == ["lookup:@cbu:company-or-fund:fund_1", "lookup:@cbu:fund:fund_1"]
    scheduler, [bind_task] = start_plan(plan)
    assert bind_task.arguments == {
        "found": [
            {"entity": {"id": "fund_1"}, "reason": "@cbu", "known_as": "@cbu", "kinds": kinds}
            for kinds in (["company", "fund"], ["fund"])
        ]
    }
    scheduler.complete(bind_task.id, [bound_party("fund_1")] * 2, at=1.0)
    expected = [{"cbu-id": "fund_1", "fund_id": "fund_1", "note": "fund_1"}, {"cbu_id": "fund_1"}]
    assert [task.arguments for task in start_ready_tasks(scheduler)] == expected
    assert list(resolved_lookups(scheduler.plan, scheduler.records)) == []


def test_party_given_by_its_id_is_fetched_like_a_party_of_the_session() -> None:
    params = {"cbu-id": "fund_1", "fund_id": "fund_1", "note": "fund_2"}
    lookup_intent = intent(fund_id=lookup_of("fund_1", "fund"))
    plan = pay_plan({"verb": "pay", "params": params}, intent({"fund_id": "@cbu"}), lookup_intent)
    expected = ["lookup:id:company-or-fund:fund_1", "lookup:id:fund:fund_1", "lookup:@cbu:fund:fund_1"]
    assert added_node_ids(plan)[:-1] == [*expected, "lookup:fund:fund_1"]
    assert plan_summary(plan).count('{"cbu-id":"fund_1","fund_id":"fund_1","note":"fund_2"}') == 1
    scheduler, [find_task] = start_plan(plan)
    assert find_task.arguments == lookup_of("fund_1", "fund")
    scheduler.complete(find_task.id, {"entity": {"id": "fund_1"}, "reason": ""}, at=1.0)
    [bind_task] = start_ready_tasks(scheduler)
    assert bind_task.arguments["found"][:2] == [
        {"entity": {"id": "fund_1"}, "reason": "id", "known_as": "id", "kinds": kinds}
        for kinds in (["company", "fund"], ["fund"])
    ]
    scheduler.complete(bind_task.id, [bound_party("fund_1")] * 4, at=2.0)
    expected_arguments = [params, {"fund_id": "fund_1"}, {"fund_id": "fund_1"}]
    assert [task.arguments for task in start_ready_tasks(scheduler)] == expected_arguments
    assert [lookup["search_text"] for lookup in resolved_lookups(scheduler.plan, scheduler.records)] == ["fund_1"]


def test_unusable_id_is_reported_at_its_param() -> None:
    invalid_intent = {"verb": "pay", "params": {"cbu-id": "nonsense"}}
    scheduler, [bind_task] = start_plan(pay_plan({"verb": "pay", "params": {"note": "n"}}, invalid_intent))
    problem = {"code": "invalid_arguments", "message": "No party has the id 'nonsense'.", "hint": "", "candidates": []}
    scheduler.complete(bind_task.id, [{"problem": problem}], at=1.0)
    assert start_ready_tasks(scheduler) == []
    [error] = lookup_errors(scheduler.plan, scheduler.records)
    expected = ("invalid_arguments", "/intents/1/params/cbu-id", "cbu-id")
    assert (error["code"], error["pointer"], error["argument"]) == expected


@pytest.mark.parametrize(
    "raw_plan",
    [
        {"intents": [{"verb": "pay", "params": {"cbu_id": "{{PLACEHOLDER_fund}}"}}]},
        {"intents": [intent({"note": "@cbu"})]},
        {"intents": [{"verb": "pay", "params": {}, "refs": {}, "lookups": None}]},
        {"plan": 1, "nodes": [{"id": "a", "tool": "pay", "arguments": {"cbu_id": "fund_1"}}]},
    ],
    ids=["placeholder", "reference_to_a_plain_value", "null_lookups", "dagwright_format"],
)
def test_plan_without_lookups_gets_no_lookup_nodes(raw_plan: dict[str, Any]) -> None:
    checked_plan = check_plan(raw_plan, {"pay": PAY_TOOL, **RESOLVER.tools()}, context={"cbu": "{{x}}"})
    inputs = {"fund": "fund_3"} if "PLACEHOLDER" in str(raw_plan) else {}
    assert added_node_ids(prepare_plan(checked_plan, inputs)) == []


NOTE_INTENT = {"verb": "pay", "params": {"note": "n"}, "refs": {}, "lookups": None}
APEX_INTENT = intent({"cbu-id": "@cbu"}, fund_id=lookup_of("Apex", "fund"))


def test_approval_of_a_call_names_its_parties() -> None:
    note_intent = {**NOTE_INTENT, "refs": {"cbu_id": "@result_1"}}
    plan = pay_plan(APEX_INTENT, note_intent, tool=replace(PAY_TOOL, returns="fund"))
    assert '{"cbu-id":"@cbu (fund_1)","fund_id":"Apex (fund)"}' in plan_summary(plan)
    scheduler = started_scheduler(plan, policy=Policy((Rule("ask", tool="pay"),)))
    [find_task] = start_ready_tasks(scheduler)
    scheduler.complete(find_task.id, {"entity": {"id": "fund_2"}, "reason": ""}, at=1.0)
    [bind_task] = start_ready_tasks(scheduler)
    ids = [party["entity"]["id"] for party in bind_task.arguments["found"]]
    scheduler.complete(bind_task.id, [bound_party(each, name="Apex", kind="fund") for each in ids], at=2.0)
    [request] = open_requests(scheduler).values()
    assert request.to_json("run")["entities"] == {"fund_1": "Apex (fund)", "fund_2": "Apex (fund)"}


def test_why_reports_how_the_party_of_a_node_was_found() -> None:
    scheduler = started_scheduler(pay_plan(APEX_INTENT, NOTE_INTENT))
    [find_task] = start_ready_tasks(scheduler)
    selection = {"type": "SELECTION", "prompt": "Which?", "options": ["fund_2", "fund_3"]}
    assert raise_question(scheduler, find_task.id, RaisedQuestion(selection), at=1.0) is None
    assert answer_request(scheduler, find_task.id, {"selected": ["fund_3"]}, by="ann", at=2.0) is None
    [find_task] = start_ready_tasks(scheduler)
    scheduler.complete(find_task.id, {"entity": {"id": "fund_3"}, "reason": "chosen by a person"}, at=3.0)
    [bind_task] = start_ready_tasks(scheduler)
    parties = [
        {**bound_party(party["entity"]["id"], name="A", kind="fund"), "reason": party["reason"]}
        for party in bind_task.arguments["found"]
    ]
    scheduler.complete(bind_task.id, parties, at=4.0)
    first_task, second_task = start_ready_tasks(scheduler)
    for task in (first_task, second_task):
        scheduler.complete(task.id, "ok", at=5.0)
    document = {lookup["argument"]: lookup for lookup in reason_of(scheduler, first_task.id).facts["lookups"]}
    assert (document["cbu-id"]["reason"], document["cbu-id"]["answers"]) == ("@cbu", [])
    fund_lookup = document["fund_id"]
    expected = ("Apex", "fund_3", "chosen by a person")
    assert (fund_lookup["search_text"], fund_lookup["entity"]["id"], fund_lookup["reason"]) == expected
    assert [(answer["request_id"], answer["by"]) for answer in fund_lookup["answers"]] == [("lookup:fund:Apex", "ann")]
    assert "lookups" not in reason_of(scheduler, second_task.id).facts


def test_question_of_a_lookup_lists_the_parameters_that_need_the_party() -> None:
    role_intent = {"verb": "pay", "params": {"role": "DIRECTOR", "days": 3}, "refs": {"cbu-id": "@result_1"}}
    plan = plan_of(
        {"verb": "make", "params": {"name": "Apex Fund", "jurisdiction": "LU"}, "refs": {}, "lookups": None},
        {**role_intent, "lookups": {"entity-id": lookup_of("John")}},
        {**role_intent, "params": {}, "lookups": {"entity-id": lookup_of("Ann"), "by": lookup_of("John")}},
        *(intent(who=lookup_of("Bob")) for _ in range(4)),
    )
    scheduler, find_tasks = start_plan(plan)
    for find_task in find_tasks:
        assert raise_question(scheduler, find_task.id, RaisedQuestion("Which one?"), at=1.0) is None
    prompts = {request.id: request.prompt for request in open_requests(scheduler).values()}
    assert prompts["lookup:person:John"] == (
        "Which one? It is for entity-id of @result_2 (pay, role DIRECTOR, days 3, cbu-id @result_1 'Apex Fund'); "
        "by of @result_3 (pay, cbu-id @result_1 'Apex Fund', entity-id Ann (person))."
    )
    assert prompts["lookup:person:Bob"] == (
        "Which one? It is for who of @result_4 (pay); who of @result_5 (pay); who of @result_6 (pay). "
        "Other nodes need it too."
    )


def test_following_request_is_known_once_the_lookup_asks_again_or_ends() -> None:
    scheduler, [find_task] = start_plan(plan_of(intent(who=lookup_of("John"))))
    view = RunView("run", "r", "waiting", None, scheduler, {}, 0.0, None, is_closed=False)
    assert following_request(view, find_task.id) == "none_follows"
    assert raise_question(scheduler, find_task.id, RaisedQuestion("Which?"), at=1.0) is None
    assert following_request(view, find_task.id) == "none_follows"
    assert answer_request(scheduler, find_task.id, {"text": "Jon"}, at=2.0) is None
    assert following_request(view, find_task.id) is None
    start_ready_tasks(scheduler)
    question = RaisedQuestion("No party found. Which?")
    assert raise_question(scheduler, find_task.id, question, at=3.0, attempt=Attempt(2)) is None
    next_request = following_request(view, find_task.id)
    assert isinstance(next_request, Request)
    assert (next_request.id, next_request.prompt.startswith("No party found.")) == (f"{find_task.id}#2", True)
    assert answer_request(scheduler, next_request.id, {"text": "John Smith"}, at=4.0) is None
    assert following_request(view, find_task.id) == "none_follows"
    start_ready_tasks(scheduler)
    scheduler.complete(find_task.id, {"entity": {"id": "person_1"}, "reason": ""}, at=5.0)
    assert following_request(view, next_request.id) == "none_follows"


def test_lookup_of_a_long_text_has_a_short_unique_id() -> None:
    plan = plan_of(intent(a=lookup_of("x" * 10_000), b=lookup_of("x" * 10_001), c=lookup_of("two\nlines\u202e")))
    first_id, second_id, third_id, _ = added_node_ids(plan)
    assert first_id != second_id
    assert {len(node_id.encode()) < 150 for node_id in added_node_ids(plan)} == {True}
    assert third_id == "lookup:person:two lines"


def test_generated_ids_differ_from_the_ids_of_the_plan() -> None:
    lookup_node = {"id": "b", "plan": {"intents": [intent(a=lookup_of("Ann"))]}}
    plan = compiled_plan({"plan": 1, "nodes": [{"id": "lookup:person:Ann", "tool": "pay"}, lookup_node]})
    assert added_node_ids(plan)[0] == "_lookup:person:Ann"


def test_plan_with_too_many_lookups_is_rejected() -> None:
    raw_plan = {"intents": [intent(a=lookup_of(f"Ann {number}")) for number in range(MAX_LOOKUPS + 1)]}
    with pytest.raises(PlanInvalid, match=r"the plan looks up 1,001 entities; a run can look up at most 1,000"):
        check_plan(raw_plan, RESOLVER.tools(), allow_unknown_tools=True)


@pytest.mark.parametrize("tool", [RESOLVER.find, RESOLVER.bind])
def test_plan_cannot_use_the_tools_of_lookups(tool: str) -> None:
    with pytest.raises(PlanInvalid, match=f"there is no tool '{tool}'"):
        check_plan({"nodes": [{"id": "a", "tool": tool}]}, RESOLVER.tools())


def test_lookups_run_concurrently_and_other_nodes_wait_for_all_bindings() -> None:
    scheduler, tasks = start_plan(plan_of(intent(a=lookup_of("Ann")), intent(b=lookup_of("Bob")), intent()))
    assert [task.id for task in tasks] == ["lookup:person:Ann", "lookup:person:Bob"]
    assert tasks[0].arguments == {"search_text": "Ann", "entity_type": "person"}
    scheduler.complete("lookup:person:Ann", {"entity": {"id": "p1"}, "reason": "exact name"}, at=1.0)
    assert start_ready_tasks(scheduler) == []
    scheduler.complete("lookup:person:Bob", {"create": {"kind": "person", "name": "Bob"}}, at=1.0)
    [bind_task] = start_ready_tasks(scheduler)
    assert bind_task.arguments == {
        "found": [{"entity": {"id": "p1"}, "reason": "exact name"}, {"create": {"kind": "person", "name": "Bob"}}]
    }
    scheduler.complete(bind_task.id, [bound_party("p1"), bound_party("p2", created=True)], at=2.0)
    expected = [("@result_1", {"a": "p1"}), ("@result_2", {"b": "p2"}), ("@result_3", {})]
    assert [(task.id, task.arguments) for task in start_ready_tasks(scheduler)] == expected
    assert [lookup["search_text"] for lookup in resolved_lookups(scheduler.plan, scheduler.records)] == ["Ann", "Bob"]
    assert counts_of(scheduler.plan, scheduler.records) == {NodeStatus.RUNNING: 3}


def test_lookups_of_a_non_interactive_run_are_not_interactive() -> None:
    _, [task] = start_plan(plan_of(intent(a=lookup_of("Ann"))), is_interactive=False)
    assert task.arguments == {"search_text": "Ann", "entity_type": "person", "is_interactive": False}


def test_failed_binding_ends_the_run() -> None:
    scheduler, [task] = start_plan(plan_of(intent(a=lookup_of("Ann")), intent()))
    scheduler.complete(task.id, {"problem": {"code": "lookup_not_found", "message": "No Ann."}}, at=1.0)
    [bind_task] = start_ready_tasks(scheduler)
    scheduler.complete(bind_task.id, [{"problem": {"code": "lookup_not_found", "message": "No Ann."}}], at=1.0)
    assert scheduler.status() is RunStatus.FAILED
    assert scheduler.state.error == NodeError("lookup_not_found", "No Ann.")
    assert {record.status for _, record in scheduler.state.visible_nodes()} == {NodeStatus.CANCELLED}
    # The error is reported in `error` of the run only.
    assert {record.reason for _, record in scheduler.state.visible_nodes()} == {"not every lookup could be resolved"}
    assert not blocking_chain(scheduler, calls={}).reasons


def test_permanent_failure_of_a_lookup_ends_the_run_with_its_message() -> None:
    scheduler, [ann_task, _] = start_plan(plan_of(intent(a=lookup_of("Ann"), b=lookup_of("Bob")), intent()))
    error = NodeError("tool_failed", "the database cannot be opened: file is not a database")
    scheduler.fail(ann_task.id, error, at=1.0)
    assert scheduler.is_stopped
    assert scheduler.state.error == error


def test_lookup_of_a_sub_plan_is_bound_in_the_parent_and_inherited() -> None:
    inner_plan = {"intents": [intent(a=lookup_of("Ann"))]}
    outer_plan = {"nodes": [{"id": "second", "plan": inner_plan}]}
    plan = compiled_plan({"plan": 1, "nodes": [{"id": "first", "plan": outer_plan}]})
    scheduler, [task] = start_plan(plan)
    scheduler.complete(task.id, {"entity": {"id": "p1"}, "reason": ""}, at=1.0)
    [bind_task] = start_ready_tasks(scheduler)
    scheduler.complete(bind_task.id, [bound_party("p1")], at=1.0)
    [sub_plan_task] = start_ready_tasks(scheduler)
    for _ in range(2):
        sub_plan = sub_plan_task.node.sub_plan
        assert sub_plan is not None
        assert added_node_ids(sub_plan) == []
        [sub_plan_task] = start_ready_tasks(started_scheduler(sub_plan, sub_plan_task.arguments))
    assert sub_plan_task.arguments == {"a": "p1"}


QUESTION = RaisedQuestion({"type": "CLARIFICATION", "prompt": "Who?"}, checkpoint={"step": "name", "text": "Ann"})


def test_request_of_a_lookup_stays_open_in_the_next_execution() -> None:
    plan = plan_of(intent(a=lookup_of("Ann")))
    scheduler, [task] = start_plan(plan)
    raise_question(scheduler, task.id, QUESTION, at=1.0)
    assert scheduler.status() is RunStatus.WAITING
    successor = restored_scheduler(scheduler, plan)
    assert [*open_requests(successor)] == ["lookup:person:Ann"]
    assert answer_request(successor, "lookup:person:Ann", {"text": "Bob"}, at=2.0) is None
    [repeated_task] = start_ready_tasks(successor)
    assert (repeated_task.call_id, repeated_task.answers) == (
        "lookup:person:Ann#2",
        [{"request_id": "lookup:person:Ann", "answer": {"text": "Bob"}, "checkpoint": QUESTION.checkpoint}],
    )


def test_early_answer_stays_with_its_lookup_when_nodes_are_added() -> None:
    scheduler, [task] = start_plan(plan_of(intent(a=lookup_of("Ann"))))
    assert answer_request(scheduler, "lookup:person:Ann", {"text": "Bob"}, at=1.0) is None
    add_nodes(scheduler, Extension(1, (CompiledNode("more", tool="pay", dependencies=(0,)),)), UNKNOWN_ACTOR, at=1.0)
    assert [node.id for node, _ in scheduler.state.visible_nodes()] == ["@result_1", "more"]
    assert scheduler.plan.nodes[0].dependencies == (3,)
    raise_question(scheduler, task.id, QUESTION, at=2.0)
    [repeated_task] = start_ready_tasks(scheduler)
    assert (repeated_task.id, [answer["answer"] for answer in repeated_task.answers]) == (task.id, [{"text": "Bob"}])
    assert scheduler.features.feedback.requests.early_ids_by_node == {2: ["lookup:person:Ann"]}


def test_answer_to_the_next_request_of_a_lookup_is_rejected_before_it_is_opened() -> None:
    scheduler, [task] = start_plan(plan_of(intent(a=lookup_of("Ann"))))
    message = "'lookup:person:Ann#{}' is not open: the questions of a lookup depend on earlier answers"
    assert answer_request(scheduler, "lookup:person:Ann#2", {"text": "Bob"}, at=1.0) == message.format(2)
    raise_question(scheduler, task.id, QUESTION, at=2.0)
    open_hint = "; 'lookup:person:Ann' is open"
    assert answer_request(scheduler, "lookup:person:Ann#4", {"text": "Bob"}, at=3.0) == message.format(4) + open_hint
    assert [*open_requests(scheduler)] == ["lookup:person:Ann"]
    assert scheduler.features.feedback.requests.early_answers == {}


_ANN, _BOB = lookup_of("Ann"), lookup_of("Bob")
_PROBLEM = {"problem": {"code": "lookup_not_found", "message": "no"}}


def _errors(plan: CompiledPlan, bind_result: list[Any]) -> list[dict[str, Any]]:
    """Return the errors of a run in which `bind_parties` returned this result."""
    scheduler = started_scheduler(plan)
    while tasks := start_ready_tasks(scheduler):
        for task in tasks:
            scheduler.complete(task.id, bind_result if task.id.startswith("lookups:") else {}, at=0.0)
    return lookup_errors(plan, scheduler.records)


def test_problem_of_a_lookup_has_the_location_of_its_first_use() -> None:
    plan = plan_of(intent(to=_ANN), intent(**{"from": _BOB, "to": _ANN}))
    assert _errors(plan, [_PROBLEM, _PROBLEM]) == [
        {**_PROBLEM["problem"], "pointer": "/intents/0/lookups/to", "node_id": "@result_1", "argument": "to"},
        {**_PROBLEM["problem"], "pointer": "/intents/1/lookups/from", "node_id": "@result_2", "argument": "from"},
    ]
    assert _errors(plan, [{}, _PROBLEM])[0]["argument"] == "from"
    assert _errors(plan, [{"entity": {"id": "a"}}, {"entity": {"id": "b"}}]) == []


def test_location_in_a_sub_plan_includes_its_parent_nodes() -> None:
    inner_plan = {"plan": 1, "nodes": [{"id": "second", "plan": {"intents": [intent(to=_ANN)]}}]}
    plan = compiled_plan({"plan": 1, "nodes": [{"id": "first", "plan": inner_plan}]})
    assert _errors(plan, [_PROBLEM]) == [
        {**_PROBLEM["problem"], "pointer": None, "node_id": "first/second/@result_1", "argument": "to"}
    ]


TOOLS = {spec.name: spec.declaration for spec in onboarding_tools("sqlite:///never-opened.db")}


MERIDIAN = lookup_of("Meridian", "entity")


def ensure_intent(**lookups: dict[str, str]) -> dict[str, Any]:
    named_lookups = {name.replace("_", "-"): lookup for name, lookup in lookups.items()}
    return {"verb": "cbu.ensure", "params": {"name": "Apex", "jurisdiction": "LU"}, "lookups": named_lookups}


def assign_role_intent(name: str, entity_type: str = "entity") -> dict[str, Any]:
    lookups = {"entity-id": lookup_of("Meridian", entity_type)}
    return {"verb": "cbu.assign-role", "params": {"role": name}, "refs": {"cbu-id": "@result_1"}, "lookups": lookups}


def checked_lookups(*intents: dict[str, Any]) -> list[tuple[str, str]]:
    checked_plan = check_document(to_document({"intents": list(intents)}), tools=TOOLS)
    return [(lookup.search_text, lookup.entity_type) for lookup in checked_plan.lookups]


def problems_of(*intents: dict[str, Any]) -> Sequence[Problem]:
    try:
        check_document(to_document({"intents": list(intents)}), tools=TOOLS)
    except PlanInvalid as invalid:
        return invalid.problems
    return ()


def test_general_entity_type_is_narrowed_to_the_kinds_of_the_parameter() -> None:
    fund_intent = ensure_intent(manco_id=lookup_of("A", "entity"), related_to=lookup_of("B", "party"))
    assert checked_lookups(fund_intent) == [("A", "company"), ("B", "company or fund")]
    assert checked_lookups(ensure_intent(), assign_role_intent("DIRECTOR")) == [("Meridian", "entity")]
    assert checked_lookups(ensure_intent(), assign_role_intent("COMPLIANCE_OFFICER")) == [("Meridian", "person")]
    assert checked_lookups(ensure_intent(manco_id=lookup_of("A", "limited-company"))) == [("A", "limited-company")]


def test_lookup_with_contradicting_types_is_rejected() -> None:
    (problem,) = problems_of(
        ensure_intent(manco_id=MERIDIAN), assign_role_intent("DIRECTOR"), assign_role_intent("COMPLIANCE_OFFICER")
    )
    assert (problem.code, problem.pointer, problem.message) == (
        "invalid_arguments",
        "/intents/2/lookups/entity-id/entity_type",
        "cbu.assign-role: 'entity-id' takes a person where 'role' is COMPLIANCE_OFFICER, but 'Meridian' is also the"
        " lookup of 'manco-id' of @result_1, which takes a company",
    )
    assert problem.hint == "write the entity_type of each lookup if two entities are meant"


def test_lookup_for_a_plain_value_is_rejected() -> None:
    (problem,) = problems_of(ensure_intent(manco_id=MERIDIAN, client_type=MERIDIAN))
    assert problem.pointer == "/intents/0/lookups/client-type"


def test_known_party_is_reused_unless_fewer_kinds_were_searched() -> None:
    plan = compile_plan(check_document(to_document({"intents": [ensure_intent(related_to=MERIDIAN)]}), tools=TOOLS))
    (node,) = [node for node in plan.nodes if node.tool == "find_party"]
    company = {"id": "company_1", "name": "Meridian", "kind": "company"}

    def result_after_lookup_of(entity_type: str, kind: str = "company") -> dict[str, Any] | None:
        entities = {Lookup("Meridian", entity_type): {**company, "kind": kind}}
        return known_result(node, KnownEntities(entities, RESOLVER))

    expected = {"entity": company, "reason": KNOWN_BEFORE}
    assert [result_after_lookup_of(entity_type) for entity_type in ("entity", "company or fund")] == [expected] * 2
    assert result_after_lookup_of("entity", "person") is None
    # The earlier lookup did not search for funds.
    assert result_after_lookup_of("company") is None
