"""Questions that are answered in rounds, on the real server with a scripted model."""

import json
from pathlib import Path

import pytest
from temporalio.client import Client

from dagwright.core.model.policy import Policy
from dagwright.testing import ANY_NUMBER, Completion, HttpError, ScriptedToolCall, step
from tests.support.goals import checked_document, nodes_and_purposes
from tests.support.rounds import (
    WorkerTools,
    continue_response,
    done_response,
    prompt_of,
    question_plan,
    ref,
    rounds_runs,
    sub_goal,
    sub_goal_statuses_of,
)

pytestmark = pytest.mark.server

INTENTION = "Compare the totals of Maersk and Evergreen."
CLARIFY_SUB_GOAL = sub_goal(9, "clarify", question="Which one?")
CLARIFICATION_SCRIPT = (continue_response(CLARIFY_SUB_GOAL), done_response(question=ref(9, "clarification")))


async def test_question_is_planned_round_by_round_and_answered(client: Client, tmp_path: Path) -> None:
    script = (
        INTENTION,
        continue_response(
            sub_goal(1, "pick", name="Maersk"), sub_goal(2, "pick", name="Evergreen"), reasoning="First both."
        ),
        continue_response(
            sub_goal(3, "add_up", numbers=ref(1, "numbers")),
            sub_goal(4, "add_up", numbers=ref(2, "numbers")),
            sub_goal(5, "compare", "Maersk and Evergreen", total=[ref(3, "total"), ref(4, "total")]),
        ),
        done_response(comparison=ref(5, "comparison")),
        "Maersk has 7 and Evergreen 11.",
    )
    worker_tools = WorkerTools()
    async with rounds_runs(client, tmp_path, *script, worker_tools=worker_tools) as (server, runs):
        document = await checked_document(runs, await runs.start_compiled_plan(question_plan(runs, synthesis="model")))
    assert (document["status"], document["output"]) == ("completed", "Maersk has 7 and Evergreen 11.")
    assert [*document["nodes"]] == [
        "intention",
        "plan",
        "sg1",
        "sg2",
        "plan#2",
        "sg3",
        "sg4",
        "sg5",
        "plan#3",
        "answer",
    ]
    assert nodes_and_purposes([*server.calls]) == [
        ("intention", "intention"),
        ("plan", "planner"),
        ("plan#2", "planner"),
        ("plan#3", "planner"),
        ("answer", "answer"),
    ]
    assert worker_tools.calls == {"pick": 2, "add_up": 2, "compare": 1}
    rounds = document["rounds"]
    assert (rounds["phase"], rounds["round"], rounds["max_rounds"]) == ("done", 3, 10)
    assert (rounds["question"], rounds["intention"]) == ("Compare Maersk and Evergreen.", INTENTION)
    expected = [[(1, "success"), (2, "success")], [(3, "success"), (4, "success"), (5, "success")], []]
    assert sub_goal_statuses_of(document) == expected
    assert rounds["sub_goals"][4] == {
        **{"id": 5, "worker": "compare", "description": "Maersk and Evergreen"},
        **{"inputs": {"total": [ref(3, "total"), ref(4, "total")]}, "params": {}, "outputs": ["comparison"]},
        **{"goal_type": "deliverable", "status": "success"},
        **{"result": {"comparison": "Maersk and Evergreen: 7 and 11"}, "error": None},
    }
    assert rounds["synthesis_inputs"] == {"comparison": ref(5, "comparison")}
    assert rounds["final_response"] == "Maersk has 7 and Evergreen 11."
    expected_reasons = ["First both.", "It is the next step.", "All is there."]
    assert [round_document["reasoning"] for round_document in rounds["rounds"]] == expected_reasons


async def test_tool_call_of_the_planner_is_repaired(client: Client, tmp_path: Path) -> None:
    response = Completion(text="Let me look.", tool_calls=(ScriptedToolCall("pick", {"name": "Maersk"}),))
    async with rounds_runs(client, tmp_path, INTENTION, response, *CLARIFICATION_SCRIPT) as (server, runs):
        document = await checked_document(runs, await runs.start_compiled_plan(question_plan(runs)))
    assert (document["status"], document["output"]) == ("completed", "Which one?")
    assert nodes_and_purposes([*server.calls])[1:3] == [("plan", "planner"), ("plan#2", "repair")]
    assert "This answer is invalid" in prompt_of(server, "plan#2")


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (None, "no requests to people are opened while a question is answered in rounds"),
        (Policy(), "not_allowed: it asks a person, but no requests to people are opened"),
    ],
    ids=["approval", "request of the tool"],
)
async def test_request_to_a_person_fails_its_sub_goal(
    client: Client, tmp_path: Path, policy: Policy | None, message: str
) -> None:
    script = (INTENTION, continue_response(sub_goal(1, "ask_permission", words="May I?")), *CLARIFICATION_SCRIPT)
    async with rounds_runs(client, tmp_path, *script) as (server, runs):
        document = await checked_document(runs, await runs.start_compiled_plan(question_plan(runs), policy=policy))
    assert document["status"] == "completed"
    assert message in prompt_of(server, "plan#2")
    # A failed support sub-goal is superseded, so it does not fail the run.
    assert document["nodes"]["sg1"]["status"] == "superseded"


async def test_run_without_remaining_budget_ends_with_its_deliverables(client: Client, tmp_path: Path) -> None:
    async with rounds_runs(client, tmp_path, INTENTION, continue_response(CLARIFY_SUB_GOAL)) as (_, runs):
        handle = await runs.start_compiled_plan(question_plan(runs), budget={"calls": 2, "on_limit": "ask"})
        document = await checked_document(runs, handle)
    assert document["status"] == "completed_with_failures"
    assert document["output"].startswith("Which one?\n\nIncomplete:\n- The work ended early: the budget was used up")
    assert document["error"].startswith("budget_spent: ")


async def test_failed_answer_is_replaced_by_the_deliverables(client: Client, tmp_path: Path) -> None:
    error = HttpError(400, "no", code="content_filter")
    script = (
        INTENTION,
        continue_response(CLARIFY_SUB_GOAL),
        done_response(question=ref(9, "clarification")),
        step(error, times=ANY_NUMBER),
    )
    async with rounds_runs(client, tmp_path, *script) as (_, runs):
        document = await checked_document(runs, await runs.start_compiled_plan(question_plan(runs, synthesis="model")))
    assert (document["status"], document["output"]) == ("completed_with_failures", "Which one?")
    assert document["nodes"]["answer"]["status"] == "failed"


async def test_planner_receives_a_preview_of_a_large_slot_and_the_answer_has_the_full_slot(
    client: Client, tmp_path: Path
) -> None:
    inputs = {"question": ref(9, "clarification"), "rows": ref(1, "rows")}
    script = (
        INTENTION,
        continue_response(CLARIFY_SUB_GOAL, sub_goal(1, "rows", count=9_000)),
        done_response("All is there.", **inputs),
    )
    async with rounds_runs(client, tmp_path, *script) as (server, runs):
        handle = await runs.start_compiled_plan(question_plan(runs))
        await checked_document(runs, handle)
        document = await runs.read_document(handle, full=True)
        planner_prompt = prompt_of(server, "plan#2")
        assert len(server.calls) == 3
    assert '"rows": {"truncated": "workers receive the whole value", "type": "list", "length": 9000' in planner_prompt
    assert '"row_count": 9000' in planner_prompt
    assert len(planner_prompt) < 20_000
    rows = [{"row": row, "text": "x" * 50} for row in range(9_000)]
    assert document["status"] == "completed"
    text_before, _, json_block = document["output"].partition("```json\n")
    assert (text_before, json.loads(json_block.removesuffix("\n```"))) == ("Which one?\n\nrows:\n\n", rows)


async def test_intention_prompt_has_the_previous_turns(client: Client, tmp_path: Path) -> None:
    turns = [{"turn_id": 1, "human_message": "Compare Maersk.", "ai_response": "With which one?"}]
    plan = {"goal": "Evergreen", "profile": "rounds", "max_rounds": 3, "turns": turns}
    async with rounds_runs(client, tmp_path, INTENTION, *CLARIFICATION_SCRIPT) as (server, runs):
        document = await checked_document(runs, await runs.start_raw({"plan": plan}, workflow="PlanAndExecute"))
    assert (document["status"], document["rounds"]["max_rounds"]) == ("completed", 3)
    prompt = prompt_of(server, "intention")
    assert '- {"human": "Compare Maersk.", "answer": "With which one?"}' in prompt
    assert prompt.endswith("The newest message:\nEvergreen")
    assert f"Meaning:\n{INTENTION}" in prompt_of(server, "plan")
