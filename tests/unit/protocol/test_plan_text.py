"""Description of a plan for a person who approves it, and the scope of the approval."""

from typing import Any

import pytest

from dagwright.core.compiler.plan_text import plan_summary, summary_and_described_ids
from dagwright.core.model.actor import Actor
from dagwright.core.model.agents import AgentCard, agent_declaration
from dagwright.core.model.compiled import CompiledNode
from dagwright.core.model.policy import ALLOW_ALL, ASK_FOR_WRITES, allow_tools, policy_from_json
from dagwright.core.model.states import NodeError
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.core.scheduler.extension import Extension
from dagwright.features.commands.node_commands import AddNodes
from dagwright.features.commands.steering import apply_command
from dagwright.features.run_scheduler import RunScheduler
from dagwright.planning.agent_loop.agent_nodes import with_agent_sub_plans
from dagwright.protocol.run_input import RunInput, run_input_from_json, run_input_to_json
from dagwright.protocol.run_start import inherited_input, scheduler_for_run, start_run
from tests.support.plan_building import (
    TOOLS,
    answer_request,
    compiled_plan,
    ids_of,
    node,
    open_requests,
    plan_of,
    restored_scheduler,
    start_ready_tasks,
    statuses_of,
)

_TOOLS = {**TOOLS, "pay": ToolDeclaration("pay", Effects.WRITE), "keep": ToolDeclaration("keep", Effects.IDEMPOTENT)}
_PAY = node("pay/all", "sum", tool="pay", arguments={"to": "ann", "amount": "{{sum.result}}"}, title="Pay them")
_PLAN = plan_of(
    node("sum"),
    _PAY,
    node("each", tool="keep", for_each=[1, 2]),
    node("child", plan=plan_of(node("deep", tool="pay"), title=None)),
    title="Pay",
)


def _start(document: dict[str, Any] = _PLAN, **run_options: Any) -> RunScheduler:
    plan = compiled_plan(document, tools=_TOOLS)
    run_input = run_input_from_json(run_input_to_json(RunInput(compiled=plan, **run_options)))
    scheduler = scheduler_for_run(plan, run_input, started_at=0.0, inputs={})
    start_run(scheduler, run_input, at=0.0)
    return scheduler


def test_plan_text_has_the_graph_and_marks_nodes_with_effects() -> None:
    assert plan_summary(compiled_plan(_PLAN, tools=_TOOLS)).splitlines() == [
        "The plan 'Pay' has 5 nodes; 3 of them can change something.",
        "- sum: any (read)",
        '! pay/all “Pay them”: pay (write) with {"to":"ann","amount":"{{sum.result}}"}, after sum',
        "! each: keep (idempotent) for each item of a list",
        "- child: a sub-plan",
        "  ! deep: pay (write)",
    ]


def test_policy_can_require_approval_of_plans_with_effects() -> None:
    policy = policy_from_json({"changes_need_plan_approval": True})
    assert policy_from_json(policy.to_json()) == policy
    assert allow_tools(policy, ["pay"]).changes_need_plan_approval
    for document, run_options, expected_requests in (
        (_PLAN, {"policy": policy}, ["plan"]),
        (_PLAN, {"policy": policy, "approved_by": "ann"}, []),
        (_PLAN, {"policy": ALLOW_ALL}, []),
        (plan_of(node("sum")), {"policy": policy}, []),
    ):
        assert [*open_requests(_start(document, **run_options))] == expected_requests, run_options
    with pytest.raises(ValueError, match="changes_need_plan_approval: expected true or false, not 'yes'"):
        policy_from_json({"changes_need_plan_approval": "yes"})


@pytest.mark.parametrize(
    ("agent_tools", "expected_line"),
    [
        ([], "- w: agent.w (read)"),
        (["any", "typed"], "- w: agent.w (read)"),
        (["any", "keep"], '! w: agent.w (idempotent) with {"objective":"…","context":{}}'),
        (["pay"], '! w: agent.w (write) with {"objective":"…","context":{}}'),
    ],
)
def test_agent_has_the_effects_of_its_tools(agent_tools: list[str], expected_line: str) -> None:
    card = AgentCard(
        name="w", description="Works", objective_template="Work", type="llm", prompt="Work!", tools=tuple(agent_tools)
    )
    tools = {**_TOOLS, "agent.w": agent_declaration(card)}
    plan = compiled_plan(plan_of(node("w", agent="w", objective="Work")), tools=tools)
    has_effects = expected_line.startswith("!")
    effects_text = "1 of them can change something" if has_effects else "none of them changes anything"
    expected_lines = [f"The plan has 1 node; {effects_text}.", expected_line]
    assert plan_summary(plan).splitlines() == expected_lines
    lines = plan_summary(with_agent_sub_plans(plan, tools)).splitlines()
    assert [line.partition(" with ")[0] for line in lines] == [line.partition(" with ")[0] for line in expected_lines]


def test_summary_of_a_plan_is_bounded_and_counts_omitted_nodes() -> None:
    large_plan = plan_of(*(node(f"n{number}") for number in range(99)), node("last", tool="pay"))
    expected = ["The plan has 100 nodes; 1 of them can change something.", "! last: pay (write)", "… and 99 more"]
    assert plan_summary(compiled_plan(large_plan, tools=_TOOLS)).splitlines() == expected
    unusual_node = node("last", title="Look\n- a: any (read)\u202e\x1b" + "x" * 8_000)
    [_, line] = plan_summary(compiled_plan(plan_of(unusual_node), tools=_TOOLS)).splitlines()
    assert line == "- last “Look\\n- a: any (read)\\u202e\\x1b" + "x" * 57 + "…”: any (read)"
    large_plan = plan_of(*(node(f"n{number}", tool="pay", arguments={"to": "x" * 900}) for number in range(60)))
    summary, described_ids = summary_and_described_ids(compiled_plan(large_plan, tools=_TOOLS))
    assert len(summary) < 6_100
    omitted_count = 60 - len(described_ids)
    assert summary.endswith(f"\n… and {omitted_count} more, {omitted_count} of them can change something")
    assert list(described_ids) == [f"n{number}" for number in range(len(described_ids))]
    assert 20 < len(described_ids) < 40
    sub_plan = plan_of(*(node(f"n{number}") for number in range(50)), title=None)
    plan = compiled_plan(plan_of(node("large", plan=sub_plan), node("small", plan=plan_of(node("a")))), tools=_TOOLS)
    assert summary_and_described_ids(plan)[1] == ["small"]


def test_plan_that_needs_approval_starts_no_node_before_the_answer() -> None:
    scheduler = _start(needs_approval=True)
    [request] = open_requests(scheduler).values()
    assert (request.id, request.type, request.purpose) == ("plan", "APPROVAL", "plan")
    assert request.prompt == plan_summary(scheduler.plan) + "\nMay it run?"
    assert start_ready_tasks(scheduler) == []
    assert answer_request(scheduler, "plan", {"approved": True}, "ann", at=1.0) is None
    assert ids_of(start_ready_tasks(scheduler, at=1.0)) == ["sum", "each[0]", "each[1]", "child"]
    rejected_run = _start(needs_approval=True)
    assert answer_request(rejected_run, "plan", {"approved": False, "reason": "too dear"}, "ann", at=1.0) is None
    assert rejected_run.is_finished
    assert rejected_run.state.error == NodeError("rejected", "rejected by ann: too dear")
    assert set(statuses_of(rejected_run).values()) == {"cancelled"}


def test_approved_plan_asks_only_for_added_nodes_and_nodes_that_require_approval() -> None:
    plan = plan_of(node("covered", tool="pay"), node("required", tool="pay", approval="required"))
    scheduler = _start(plan, approved_by="ann")
    next_execution = restored_scheduler(scheduler, policy=scheduler.state.policy)
    assert scheduler.state.policy == ASK_FOR_WRITES
    assert list(open_requests(scheduler)) == ["required"]
    assert ids_of(start_ready_tasks(scheduler)) == ["covered"]
    child_input = inherited_input(RunInput(), next_execution, number=0)
    assert (child_input.policy, child_input.approved_by, child_input.approved_tools) == (ASK_FOR_WRITES, "ann", {})
    added_nodes = Extension(2, (CompiledNode("added", tool="pay"),), {"pay": _TOOLS["pay"]})
    for run in (scheduler, next_execution):
        assert apply_command(AddNodes(added_nodes, actor=Actor("ben")), run, at=1.0) is None
        assert list(open_requests(run)) == ["required", "added"]


def test_deny_rule_of_the_policy_overrides_an_approval_of_the_plan() -> None:
    policy = policy_from_json({"rules": [{"tool": "pay", "then": "deny"}]})
    assert statuses_of(_start(plan_of(node("a", tool="pay")), policy=policy, approved_by="ann")) == {"a": "failed"}


def test_remembered_approval_of_a_tool_applies_to_sub_plans() -> None:
    scheduler = _start(plan_of(node("a", tool="pay"), node("b", tool="pay")), policy=ASK_FOR_WRITES)
    assert answer_request(scheduler, "a", {"approved": True, "remember": True}, "ann", at=1.0) is None
    child_input = inherited_input(RunInput(), scheduler, number=0)
    assert ids_of(start_ready_tasks(scheduler, at=1.0)) == ["a", "b"]
    assert (child_input.approved_by, child_input.approved_tools) == (None, {"pay": "ann"})
    inherited = {"policy": child_input.policy, "approved_tools": child_input.approved_tools}
    sub_plan_run = _start(plan_of(node("c", tool="pay")), **inherited)
    assert ids_of(start_ready_tasks(sub_plan_run, at=2.0)) == ["c"]


def test_approval_request_of_a_plan_has_an_id_that_no_node_has() -> None:
    scheduler = _start(plan_of(node("plan", human={"prompt": "?"})), needs_approval=True)
    assert list(open_requests(scheduler)) == ["plan#0"]
    assert answer_request(scheduler, "plan#0", {"approved": True}, at=1.0) is None
    assert list(open_requests(scheduler)) == ["plan"]
