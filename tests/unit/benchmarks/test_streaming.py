"""The comparison of streamed, complete and turn-based plans: scripts, measurements, and verdicts."""

import json
from collections.abc import Callable

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

from benchmarks.planning import slow_tools
from benchmarks.planning.paced_responses import (
    ANSWER_TEXT,
    CHUNK_CHARACTERS,
    SHAPES,
    TOKEN_CHARACTERS,
    TOKENS_PER_S,
    TOOL,
    Shape,
    agent_script,
    chained_calls,
    plan_text,
    planner_script,
)
from benchmarks.planning.streaming import tool_starts
from benchmarks.planning.streaming_report import Comparison, RunTimes, report_to_json, written_figure
from dagwright.planner.plan_parser import parse_plan
from dagwright.planning.model_calls.model_requests import CallLabels
from dagwright.testing import Completion
from dagwright.tools import load_tools


@pytest.mark.parametrize("make_shape", SHAPES)
@pytest.mark.parametrize("size", [3, 6, 9])
def test_plan_text_is_parsed_with_the_edges_of_its_shape(make_shape: Callable[[int], Shape], size: int) -> None:
    shape = make_shape(size)
    text = plan_text(shape)
    parsed_plan = parse_plan(json.loads(text), text, load_tools([slow_tools.__file__]).declarations())
    nodes = dict(parsed_plan.document)["nodes"]
    positions = {node["id"]: position for position, node in enumerate(nodes)}
    edges = [tuple(positions[node_id] for node_id in referenced_node_ids(node["arguments"])) for node in nodes]
    assert (parsed_plan.notes, edges) == ([], [tuple(dependencies) for dependencies in shape.dependencies])
    assert len(parsed_plan.planned_nodes.nodes) == size


def referenced_node_ids(arguments: object) -> list[str]:
    """Return the IDs of the nodes that the arguments reference."""
    return [part.partition(".")[0] for part in json.dumps(arguments).split("{{")[1:]]


def test_streamed_and_unstreamed_plans_have_the_same_model_time() -> None:
    shape = chained_calls(3)
    model_times_s = []
    for is_streamed in (True, False):
        plan, answer = (step.answer for step in planner_script("run", shape, is_streamed=is_streamed))
        assert isinstance(plan, Completion)
        assert isinstance(answer, Completion)
        chunk_count = -(-len(plan_text(shape)) // CHUNK_CHARACTERS) if is_streamed else 0
        model_times_s.append(plan.pace.first_byte_delay_s + chunk_count * plan.pace.chunk_delay_s)
        assert answer.pace.first_byte_delay_s == len(ANSWER_TEXT) / TOKEN_CHARACTERS / TOKENS_PER_S
    assert model_times_s == pytest.approx([len(plan_text(shape)) / TOKEN_CHARACTERS / TOKENS_PER_S] * 2, abs=0.04)


def test_conditions_of_the_steps_use_the_names_of_the_labels_of_a_call() -> None:
    shape = chained_calls(3)
    label_names = CallLabels(run_id="run", node_id="node", purpose="purpose").to_json().keys()
    for step in (*planner_script("run", shape, is_streamed=True), *agent_script("run", shape)):
        assert step.when.metadata.keys() <= label_names


def test_only_calls_of_the_tool_count_as_tool_starts() -> None:
    events = []
    for number, activity_type in enumerate(["call_model", TOOL, TOOL]):
        scheduled_event = HistoryEvent(event_id=2 * number, event_type=EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED)
        scheduled_event.activity_task_scheduled_event_attributes.activity_type.name = activity_type
        started_event = HistoryEvent(event_id=2 * number + 1, event_type=EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED)
        started_event.activity_task_started_event_attributes.scheduled_event_id = 2 * number
        started_event.event_time.FromSeconds(100 + number)
        events += [scheduled_event, started_event]
    assert tool_starts(events) == [101.0, 102.0]


CHAIN_COMPARISON = Comparison(
    "chain",
    nodes=3,
    tokens=120,
    streamed=[
        RunTimes(first_call_s=1.0, end_s=5.0, written=0.30),
        RunTimes(first_call_s=1.2, end_s=5.5, written=0.32),
        RunTimes(first_call_s=9.0, end_s=9.0, written=0.90),
    ],
    whole=[RunTimes(first_call_s=2.4, end_s=6.0)],
    turns=[RunTimes(first_call_s=0.5, end_s=7.25)],
)


def test_worst_plan_determines_the_verdict_and_all_plans_are_reported() -> None:
    mixed_times = [RunTimes(first_call_s=3.0, end_s=5.0, written=0.7)]
    mixed_comparison = Comparison(
        "mixed", nodes=6, tokens=200, streamed=mixed_times, whole=CHAIN_COMPARISON.whole, turns=CHAIN_COMPARISON.turns
    )
    assert written_figure([CHAIN_COMPARISON, mixed_comparison]).verdict == "failed"
    document = report_to_json([CHAIN_COMPARISON, mixed_comparison])
    assert document["figures"][0]["measured"] == {"chain of 3": 32.0, "mixed of 6": 70.0}
    assert [plan["streamed"][0]["written"] for plan in document["plans"]] == [0.30, 0.7]
