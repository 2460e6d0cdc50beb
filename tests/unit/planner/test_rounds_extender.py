"""Nodes that a run with the profile `rounds` adds, tested with a scheduler and without a server."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import pytest

from dagwright.core.boundary.limits import ARGUMENTS_LIMIT_BYTES, DOCUMENT_LIMIT_BYTES
from dagwright.core.expressions.value_refs import encoded_size
from dagwright.core.model.compiled import plan_from_json, plan_to_json
from dagwright.core.model.states import NodeError, RunStatus, Task
from dagwright.features.commands.node_commands import RetryNode, SetResult
from dagwright.features.commands.steering import apply_command
from dagwright.features.run_scheduler import RunScheduler, create_scheduler
from dagwright.planner import RoundsOptions, prepare_rounds
from dagwright.planner.rounds_parser import parse_round
from dagwright.planner.rounds_start import SHOWN_TURN_CHARACTERS
from dagwright.planning.conversation import TurnSummary
from dagwright.planning.rounds.rounds_documents import RoundsPhase, rounds_document
from dagwright.planning.rounds.rounds_spec import RoundsLimits
from dagwright.planning.rounds.sub_goals import ROUND_CONTEXTS, SubGoalStatus
from dagwright.protocol.run_start import extender_of
from dagwright.protocol.scheduler_snapshot import restore_state, state_to_json
from tests.support.docs import ROOT
from tests.support.plan_building import end_task, start_ready_tasks, with_extender
from tests.support.rounds import WorkerTools, continue_response, done_response, failed_response, ref, sub_goal

ROUNDS_DOCUMENTATION = (ROOT / "docs/reference/documents.md").read_text(encoding="utf-8").partition("\n## Rounds\n")[2]
PICK_MAERSK = sub_goal(1, "pick", name="Maersk")
PICK_EVERGREEN = sub_goal(2, "pick", name="Evergreen")
ADD_UP = sub_goal(3, "add_up", numbers=ref(1, "numbers"))
CLARIFY = sub_goal(9, "clarify", question="Which?")
CLARIFY_OTHER = sub_goal(8, "clarify", question="Other?")
DONE = done_response(all=ref(9, "clarification"))
GIVE_UP = failed_response("no")
FAILURE = NodeError("tool_failed", "no")
WorkerResults = Mapping[str, Any]
FIRST_SUB_GOAL_FAILURE: WorkerResults = {"sg1": FAILURE}


class RoundsRun:
    """A run of the profile `rounds`, with scripted model calls and worker tools.

    Args:
        planner_answers: the answers of the planner, in order.
        worker_results: node id -> the outputs of the worker tool, or the error of the node.
        prompts: node id of a planner call -> its prompt. `argument_sizes` and `known_sub_goal_ids` have the same keys.
    """

    def __init__(
        self,
        *planner_answers: Any,
        worker_results: WorkerResults | None = None,
        max_rounds: int = 10,
        options: RoundsOptions | None = None,
    ) -> None:
        tools = WorkerTools().registry().declarations()
        self.plan = prepare_rounds("Compare.", tools, options or RoundsOptions(limits=RoundsLimits(max_rounds)))[0]
        self.scheduler = self._scheduler()
        self.scheduler.start(0.0)
        self.now = 0.0
        self.planner_answers: Sequence[Any] = planner_answers
        self.worker_results: WorkerResults = worker_results or {}
        self.prompts: dict[str, str] = {}
        self.argument_sizes: dict[str, int] = {}
        self.known_sub_goal_ids: dict[str, list[int]] = {}

    def _scheduler(self) -> RunScheduler:
        scheduler = create_scheduler(plan_from_json(json.loads(json.dumps(plan_to_json(self.plan)))), {})
        return with_extender(scheduler, extender_of(scheduler.plan))

    def step(self) -> list[str]:
        """Start and end all tasks that may start now, and return their IDs."""
        tasks = self.start()
        self.end(tasks)
        return [task.id for task in tasks]

    def start(self) -> list[Task]:
        self.now += 1.0
        return start_ready_tasks(self.scheduler, at=self.now)

    def end(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            self.now += 1.0
            end_task(self.scheduler, task, self._result_of(task.id, task.arguments), at=self.now)

    def _result_of(self, node_id: str, arguments: Mapping[str, Any]) -> Any:
        if node_id.startswith("sg"):
            outputs = self.worker_results.get(node_id)
            if outputs is None or isinstance(outputs, NodeError):
                return outputs or {"status": "success", "outputs": self._default_outputs(arguments)}
            return {"status": "success", "outputs": outputs}
        if not node_id.startswith("plan"):
            return _model_response(node_id)
        self.argument_sizes[node_id] = encoded_size(arguments)
        self.prompts[node_id] = arguments["messages"][-1]["content"]
        answer, self.planner_answers = self.planner_answers[0], self.planner_answers[1:]
        if isinstance(answer, NodeError):
            return answer
        context = ROUND_CONTEXTS.decode(json.loads(json.dumps(arguments["round_context"])))
        self.known_sub_goal_ids[node_id] = [sub_goal.id for sub_goal in context.known]
        return {**_model_response(answer), "parsed_round": parse_round(None, answer, context)}

    @staticmethod
    def _default_outputs(arguments: Mapping[str, Any]) -> dict[str, Any]:
        if "numbers" in arguments:
            return {"total": sum(arguments["numbers"])}
        return {"numbers": [1, 2]} if "name" in arguments else {"clarification": arguments["question"]}

    def run_to_end(self) -> list[list[str]]:
        """Continue the run to its end, and return the groups of tasks that ran together."""
        steps = []
        while not self.scheduler.is_finished:
            steps.append(self.step())
            assert steps[-1], "no task can start"
        return steps

    def continue_as_new(self) -> None:
        """Continue with another scheduler, as a new execution does."""
        state = state_to_json(self.scheduler)
        self.scheduler = self._scheduler()
        restore_state(self.scheduler, state)

    def start_second_planner_call(self) -> list[Task]:
        """Continue to the second planner call, and return its unfinished task."""
        for _ in range(3):
            self.step()
        return self.start()

    @property
    def error_code(self) -> str:
        error = self.scheduler.state.error or self.scheduler.features.extension.goal_error()
        return error.code if error is not None else ""

    @property
    def error_message(self) -> str:
        error = self.scheduler.state.error
        return error.message if error is not None else ""


def ended_run(*planner_answers: Any, **options: Any) -> RoundsRun:
    run = RoundsRun(*planner_answers, **options)
    run.run_to_end()
    return run


def _model_response(text: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    return {"message": message, "finish_reason": "stop", "model": "m", "usage": {}, "conversation": "ref"}


def test_sub_goals_start_when_their_inputs_exist_and_the_planner_when_all_have_ended() -> None:
    dependent_sub_goal = sub_goal(4, "compare", "the sum", total=[ref(3, "total")])
    run = RoundsRun(
        continue_response(PICK_MAERSK, ADD_UP, dependent_sub_goal, PICK_EVERGREEN),
        done_response(all=ref(4, "comparison")),
        worker_results={"sg4": {"comparison": "x"}},
    )
    assert run.run_to_end() == [["intention"], ["plan"], ["sg1", "sg2"], ["sg3"], ["sg4"], ["plan#2"]]
    assert run.scheduler.status() is RunStatus.COMPLETED
    assert run.scheduler.output() == ("x", None)


def test_run_that_continues_as_new_after_each_step_has_the_same_steps() -> None:
    answers = (continue_response(PICK_MAERSK, CLARIFY), "No.", continue_response(PICK_EVERGREEN), DONE)
    expected = RoundsRun(*answers).run_to_end()
    run = RoundsRun(*answers)
    steps = []
    while not run.scheduler.is_finished:
        steps.append(run.step())
        run.continue_as_new()
    assert steps == expected
    assert run.scheduler.status() is RunStatus.COMPLETED


def test_pending_sub_goals_are_kept_until_their_dependency_is_retried() -> None:
    run = RoundsRun(
        continue_response(PICK_MAERSK, ADD_UP, CLARIFY),
        continue_response(PICK_EVERGREEN),
        continue_response(PICK_MAERSK),
        DONE,
        worker_results=FIRST_SUB_GOAL_FAILURE,
    )
    assert run.run_to_end()[2:] == [["sg1", "sg9"], ["plan#2"], ["sg2"], ["plan#3"], ["sg1#2"], ["sg3"], ["plan#4"]]
    assert run.known_sub_goal_ids == {"plan": [], "plan#2": [1, 3, 9], "plan#3": [1, 3, 9, 2], "plan#4": [1, 3, 9, 2]}
    assert '"waits_for": [{"sub_goal": 1, "status": "failed"}]' in run.prompts["plan#3"]
    assert run.scheduler.status() is RunStatus.COMPLETED


def retry_while_planning(command: RetryNode) -> tuple[RoundsRun, list[Task], list[Task]]:
    """Retry sub-goal 1 manually while the planner starts sub-goals 1 and 5.

    Return the run, the tasks of the planner and the tasks of the retry.
    """
    new_answer = continue_response(PICK_MAERSK, sub_goal(5, "pick", name="MSC"))
    run = RoundsRun(continue_response(PICK_MAERSK, CLARIFY), new_answer, DONE, worker_results=FIRST_SUB_GOAL_FAILURE)
    planner_tasks = run.start_second_planner_call()
    run.worker_results = {}
    assert [task.id for task in planner_tasks] == ["plan#2"]
    apply_command(command, run.scheduler, at=run.now)
    return run, planner_tasks, run.start()


@pytest.mark.parametrize("ends_before_planner", [True, False])
def test_manually_restarted_sub_goal_does_not_delay_other_sub_goals(ends_before_planner: bool) -> None:
    run, planner_tasks, retried_tasks = retry_while_planning(RetryNode("sg1", {"name": "Hapag"}))
    assert [task.id for task in retried_tasks] == ["sg1#2"]
    for tasks in (retried_tasks, planner_tasks) if ends_before_planner else (planner_tasks, retried_tasks):
        run.end(tasks)
    task_ids = [task_id for step in run.run_to_end() for task_id in step]
    assert "sg5" in task_ids
    assert run.scheduler.status() is RunStatus.COMPLETED
    assert run.planner_answers == ()


def test_manually_completed_sub_goal_is_not_started_again_by_the_planner() -> None:
    run, planner_tasks, retried_tasks = retry_while_planning(RetryNode("sg1"))
    assert [task.id for task in retried_tasks] == ["sg1"]
    run.end([*retried_tasks, *planner_tasks])
    task_ids = [task_id for step in run.run_to_end() for task_id in step]
    assert [task_id for task_id in task_ids if task_id.startswith("sg")] == ["sg5"]
    assert run.scheduler.status() is RunStatus.COMPLETED


def _document(run: RoundsRun) -> dict[str, Any]:
    actual = rounds_document(run.scheduler, lambda value, _: value)
    assert actual is not None
    return actual


def _result_statuses(run: RoundsRun) -> list[list[tuple[int, str]]]:
    return [
        [(result["sub_goal_id"], result["status"]) for result in round_document["results"]]
        for round_document in _document(run)["rounds"]
    ]


def test_results_are_in_the_round_that_started_the_sub_goal() -> None:
    run = ended_run(
        continue_response(PICK_MAERSK, ADD_UP, CLARIFY),
        continue_response(PICK_MAERSK, PICK_EVERGREEN),
        continue_response({**ADD_UP, "inputs": {"numbers": ref(2, "numbers")}}),
        GIVE_UP,
        worker_results={"sg1": FAILURE, "sg1#2": FAILURE},
    )
    expected = [[(1, "failed"), (9, "success")], [(1, "failed"), (2, "success")], [(3, "success")], []]
    assert _result_statuses(run) == expected
    # Sub-goal 3 waits in the first round, and starts in the second.
    answers = (continue_response(PICK_MAERSK, ADD_UP), continue_response(PICK_MAERSK), GIVE_UP)
    run = ended_run(*answers, worker_results=FIRST_SUB_GOAL_FAILURE)
    assert _result_statuses(run) == [[(1, "failed")], [(3, "success"), (1, "success")], []]
    run = RoundsRun(continue_response(PICK_MAERSK, CLARIFY), DONE, worker_results=FIRST_SUB_GOAL_FAILURE)
    planner_tasks = run.start_second_planner_call()
    apply_command(RetryNode("sg1", {"name": "Hapag"}), run.scheduler, at=run.now)
    run.worker_results = {}
    run.end(planner_tasks)
    run.run_to_end()
    assert _result_statuses(run) == [[(1, "failed"), (9, "success"), (1, "success")], []]


def test_document_has_the_documented_fields() -> None:
    turns = (TurnSummary(1, "Compare.", "With which one? " + "x" * 2_000),)
    answers = (continue_response(PICK_MAERSK, CLARIFY, reasoning="First."), DONE)
    run = ended_run(*answers, options=RoundsOptions(turns=turns))
    actual = _document(run)
    documented_example = json.loads(
        next(text for text in re.findall(r"```text\n(.*?)```", ROUNDS_DOCUMENTATION, re.DOTALL) if '"phase"' in text)
    )
    assert [*documented_example] == [*actual]
    for field in ("sub_goals", "messages", "rounds", "conversation_history"):
        assert [*documented_example[field][0]] == [*actual[field][0]], field
    outputs: dict[int, Any] = {1: {"numbers": [1, 2]}, 9: {"clarification": "Which?"}}
    assert actual["rounds"][0]["results"] == [
        {"sub_goal_id": number, "status": "success", "outputs": output, "error": None, "message": None}
        for number, output in outputs.items()
    ]
    assert actual["completed_outputs"] == {str(number): output for number, output in outputs.items()}
    (turn,) = actual["conversation_history"]
    assert (turn["turn_id"], turn["human_message"], len(turn["ai_response"])) == (1, "Compare.", 508)
    assert f"at most {SHOWN_TURN_CHARACTERS} characters" in ROUNDS_DOCUMENTATION
    assert [(message["role"], message["name"], message["content"]) for message in actual["messages"]] == [
        *(("user", "question", "Compare."), ("assistant", "intention", "intention"), ("assistant", "plan", "First.")),
        *(("tool", "sg1", "success"), ("tool", "sg9", "success")),
        *(("assistant", "plan", "All is there."), ("assistant", "answer", "Which?")),
    ]


def test_documentation_lists_each_phase_and_each_sub_goal_status() -> None:
    phases, statuses = (
        re.search(rf"^\| `{name}`.*$", ROUNDS_DOCUMENTATION, re.MULTILINE) for name in ("phase", "status")
    )
    assert phases is not None
    assert statuses is not None
    assert re.findall(r"`(\w+)`", phases[0].split("|")[2]) == [*get_args(RoundsPhase)]
    assert re.findall(r"`(\w+)`", statuses[0].split("|")[2].partition(";")[0]) == [*get_args(SubGoalStatus)]


def test_long_values_in_the_document_are_replaced_by_references() -> None:
    # The limit for outputs is 8 KiB in `sub_goals` and 2 KiB in `rounds`.
    medium_outputs, long_outputs = {"numbers": ["x" * 5_000]}, {"numbers": ["x" * 9_000]}
    answer = continue_response(PICK_MAERSK, sub_goal(2, "pick", name="é" * 1_000))
    run = ended_run(answer, GIVE_UP, worker_results={"sg1": medium_outputs, "sg2": long_outputs})
    actual = _document(run)
    outputs = actual["rounds"][0]["results"][0]["outputs"]
    assert (outputs["ref"], outputs["bytes"]) == ("node:sg1", 5_016)
    assert actual["completed_outputs"]["1"] == outputs
    first_sub_goal, second_sub_goal = actual["sub_goals"]
    assert first_sub_goal["result"] == medium_outputs
    long_values = [second_sub_goal[field] for field in ("params", "result")]
    assert [[*value] for value in long_values] == [["ref", "bytes", "preview"]] * 2
    assert [(value["ref"], value["bytes"]) for value in long_values] == [("node:sg2", 2_011), ("node:sg2", 9_016)]


def test_repeated_and_invalid_planner_answers_are_limited_per_round() -> None:
    repeated_answer = continue_response(PICK_MAERSK | {"id": 2})
    run = ended_run(
        continue_response(PICK_MAERSK),
        repeated_answer,
        continue_response(PICK_EVERGREEN),
        repeated_answer,
        continue_response(CLARIFY),
        DONE,
    )
    assert run.scheduler.status() is RunStatus.COMPLETED
    run = ended_run(continue_response(PICK_MAERSK), repeated_answer, repeated_answer)
    assert (run.scheduler.status(), run.error_code) == (RunStatus.FAILED, "planner_repeats")
    assert "the same work was done in sub-goal 1, whose status is success" in run.error_message
    run = ended_run(*["No."] * 3, continue_response(CLARIFY), *["No."] * 3, DONE)
    assert run.scheduler.status() is RunStatus.COMPLETED
    run = ended_run(continue_response(CLARIFY), *["No."] * 4)
    assert (run.scheduler.status(), run.error_code) == (RunStatus.COMPLETED_WITH_FAILURES, "planner_invalid")


def test_sub_goal_that_always_fails_is_started_three_times_and_named_in_the_error() -> None:
    failures = dict.fromkeys(("sg1", "sg1#2", "sg1#3"), FAILURE)
    run = RoundsRun(*[continue_response(PICK_MAERSK)] * 5, worker_results=failures)
    steps = run.run_to_end()
    assert sum(step[0].startswith("sg1") for step in steps) == 3
    assert "sub-goal 1 failed in 3 attempts with the same inputs" in run.error_message


def test_planner_that_gives_up_fails_the_run_with_its_reason() -> None:
    run = ended_run(continue_response(PICK_MAERSK), failed_response("There is no such carrier."))
    assert run.scheduler.status() is RunStatus.FAILED
    assert run.scheduler.state.error == NodeError("planner_failed", "There is no such carrier.")
    assert _document(run)["planner_reasoning"] == "There is no such carrier."


def test_failed_planner_call_keeps_the_deliverables() -> None:
    failure = NodeError("model_unavailable", "no response")
    run = ended_run(continue_response(CLARIFY), failure)
    assert (run.scheduler.status(), run.error_code) == (RunStatus.COMPLETED_WITH_FAILURES, "model_unavailable")
    assert run.scheduler.output() == ("Which?\n\nIncomplete:\n- The work ended early: no response", None)
    run = ended_run(failure)
    assert (run.scheduler.status(), run.error_code) == (RunStatus.FAILED, "model_unavailable")
    run = RoundsRun()
    (task,) = run.start()
    run.scheduler.fail(task.id, NodeError("model_key_rejected", "no such key"), at=2.0)
    assert (run.scheduler.status(), run.error_code) == (RunStatus.FAILED, "model_key_rejected")


@pytest.mark.parametrize("continues_as_new", [False, True])
def test_answer_of_the_run_is_assembled_from_slots_in_order_without_a_model_call(*, continues_as_new: bool) -> None:
    worker_results = {"sg1": {"numbers": [3, 4]}, "sg3": {"total": 7}, "sg9": {"clarification": "**Which one?**"}}
    inputs = {"question": ref(9, "clarification"), "total": ref(3, "total"), "numbers": ref(1, "numbers")}
    answers = (continue_response(PICK_MAERSK, ADD_UP, CLARIFY), done_response("All is there.", **inputs))
    run = RoundsRun(*answers, worker_results=worker_results)
    while not run.scheduler.is_finished:
        run.step()
        if continues_as_new:
            run.continue_as_new()
    assert run.scheduler.status() is RunStatus.COMPLETED
    assert run.scheduler.state.number_of("answer") is None
    text = "**Which one?**\n\ntotal: 7\n\nnumbers:\n\n```json\n[3,4]\n```"
    assert run.scheduler.output() == (text, None)
    document = _document(run)
    assert (document["phase"], document["final_response"]) == ("done", text)


def test_assembled_answer_lists_incomplete_parts() -> None:
    worker_results = {"sg1": FAILURE, "sg8": NodeError("tool_failed", "no\nway")}
    other_clarification = {**CLARIFY_OTHER, "description": "The other one"}
    answer = continue_response(PICK_MAERSK, CLARIFY, other_clarification)
    run = ended_run(answer, DONE, worker_results=worker_results)
    assert run.scheduler.status() is RunStatus.COMPLETED_WITH_FAILURES
    assert run.scheduler.output() == ("Which?\n\nIncomplete:\n- The other one: failed: tool_failed: no way", None)
    run = ended_run(continue_response(CLARIFY), continue_response(PICK_EVERGREEN), max_rounds=2)
    assert (run.scheduler.status(), run.error_code) == (RunStatus.COMPLETED_WITH_FAILURES, "max_rounds")
    text, _ = run.scheduler.output()
    assert text.startswith("Which?\n\nIncomplete:\n- The work ended early: all 2 rounds are used")
    assert _document(run)["synthesis_inputs"] == {"sg9_clarification": ref(9, "clarification")}


def test_run_without_the_synthesis_field_calls_a_model_for_its_answer() -> None:
    run = RoundsRun(continue_response(CLARIFY), DONE)
    plan_document = plan_to_json(run.plan)
    del plan_document["extender"]["synthesis"]
    run.plan = plan_from_json(plan_document)
    run.scheduler = run._scheduler()
    run.scheduler.start(0.0)
    run.run_to_end()
    assert run.scheduler.output() == ("answer", None)


def test_failed_deliverable_sub_goal_stays_failed_and_failed_support_sub_goal_is_superseded() -> None:
    answer = continue_response(PICK_MAERSK, ADD_UP, CLARIFY, CLARIFY_OTHER)
    run = ended_run(answer, DONE, worker_results={"sg1": FAILURE, "sg8": FAILURE})
    states = {
        node.id: record.status.value for node, record in run.scheduler.state.visible_nodes() if node.id.startswith("sg")
    }
    assert states == {"sg1": "superseded", "sg3": "superseded", "sg9": "completed", "sg8": "failed"}
    assert run.scheduler.status() is RunStatus.COMPLETED_WITH_FAILURES
    statuses = [(sub_goal["id"], sub_goal["status"]) for sub_goal in _document(run)["sub_goals"]]
    assert statuses == [(1, "failed"), (3, "pending"), (9, "success"), (8, "failed")]


def test_document_has_the_phase_and_round_after_each_step() -> None:
    run = RoundsRun(continue_response(PICK_MAERSK), continue_response(PICK_EVERGREEN), GIVE_UP)

    def phase() -> str:
        return "{phase} {round}".format(**_document(run))

    phases = [phase()]
    while not run.scheduler.is_finished:
        run.step()
        phases.append(phase())
    assert phases == [*("idle 1", "planning 1", "executing 1", "joining 2", "executing 2", "joining 3", "failed 3")]


def test_manual_result_of_a_sub_goal_must_have_exactly_its_slots() -> None:
    extender = RoundsRun(continue_response(PICK_MAERSK)).scheduler.features.extension.extender
    assert extender is not None
    accepts_result = {"intention": False, "plan#2": False, "answer": False, "sg1": True}
    assert {
        name: extender.rejection_of_result(name, {"numbers": [1]}) is None for name in accepts_result
    } == accepts_result
    run = RoundsRun(continue_response(PICK_MAERSK, ADD_UP), GIVE_UP, worker_results=FIRST_SUB_GOAL_FAILURE)
    planner_tasks = run.start_second_planner_call()
    message_start = "the result of 'sg1' must have exactly these slots (some may be null): numbers; "
    for result, message in (
        ("text", "the result of 'sg1' must be an object with the output slots of 'pick': numbers"),
        ({}, f"{message_start}missing: 'numbers'"),
        ({"numbers": [1], "total": 1}, f"{message_start}not declared: 'total'"),
    ):
        assert apply_command(SetResult("sg1", result), run.scheduler, at=run.now) == message
    assert apply_command(SetResult("sg1", {"numbers": [1]}), run.scheduler, at=run.now) is None
    run.end([*run.start(), *planner_tasks])
    assert [sub_goal["status"] for sub_goal in _document(run)["sub_goals"]] == ["success", "success"]


def test_planner_prompt_is_short_and_has_the_reasoning_of_earlier_rounds() -> None:
    sub_goals = [sub_goal(number, "pick", f"number {number}", name=str(number)) for number in range(1, 41)]
    worker_results = {f"sg{number}": {"numbers": ["x" * 7_000]} for number in range(1, 41)}
    run = ended_run(continue_response(*sub_goals), GIVE_UP, worker_results=worker_results)
    assert len(run.prompts["plan#2"]) < 70_000
    assert run.prompts["plan#2"].count('"preview": ') == 40
    run = ended_run(
        continue_response(PICK_MAERSK, reasoning="First\nMaersk."),
        continue_response(ADD_UP, reasoning="Then the sum."),
        GIVE_UP,
    )
    prompt_lines = run.prompts["plan#3"].splitlines()
    title_index = prompt_lines.index("Your reasoning in earlier rounds:")
    expected = ['- {"round": 1, "reasoning": "First Maersk."}', '- {"round": 2, "reasoning": "Then the sum."}']
    assert prompt_lines[title_index + 1 : title_index + 3] == expected


def _large_sub_goal(number: int, text: str) -> dict[str, Any]:
    return sub_goal(number, "pick", f"{number} {text * 600}", name=f"{number} {text * 150}")


@pytest.mark.parametrize("character", ["\U0001f6a2", "\x01"])
def test_planner_call_and_document_have_a_limited_size(character: str) -> None:
    answers = [
        continue_response(
            *(_large_sub_goal(10 * round_index + position, character) for position in range(1, 11)),
            reasoning=character * 4_000,
        )
        for round_index in range(10)
    ]
    worker_results = {f"sg{number}": {"numbers": [character * 2_000]} for number in range(1, 101)}
    run = ended_run(*answers, GIVE_UP, worker_results=worker_results, max_rounds=20)
    last_prompt = run.prompts["plan#11"]
    assert run.argument_sizes["plan#11"] < ARGUMENTS_LIMIT_BYTES // 2
    # All sub-goals are listed, and the newest have the most detail.
    assert [f'- {{"id": {number}, ' in last_prompt for number in range(1, 101)] == [True] * 100
    assert last_prompt.count('"preview": ') > 0
    assert last_prompt.rindex('"truncated": "other fields are omitted"') < last_prompt.rindex('- {"id": 100, ')
    assert '{"round": 10, ' in last_prompt
    document = _document(run)
    assert encoded_size(document) < DOCUMENT_LIMIT_BYTES // 2
    assert [sub_goal["id"] for sub_goal in document["sub_goals"]] == [*range(1, 101)]
    assert [round_document["round"] for round_document in document["rounds"]] == [*range(1, 12)]
    assert len(document["rounds"][9]["results"]) == 10
    assert len(document["sub_goals"][99]["description"]) > 600
    # Long values of the oldest sub-goals are references to their nodes.
    oldest_sub_goal = document["sub_goals"][0]
    assert oldest_sub_goal["result"]["ref"] == "node:sg1"
    assert encoded_size(oldest_sub_goal) < 2_000
