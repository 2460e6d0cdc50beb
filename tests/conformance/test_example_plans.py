"""Every plan in `examples/seeds` is checked, and `README.md` lists it. Some plans also run with stub tools."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from dagwright.core.compiler.compilation import compile_plan
from dagwright.core.errors import PlanInvalid
from dagwright.core.expressions.references import Scope, resolve_bindings
from dagwright.core.model.compiled import CompiledPlan
from dagwright.core.model.graph import levels_of
from dagwright.core.model.worker_results import unwrap_worker_result
from dagwright.dialects.reading import read_plan_file
from dagwright.plans.preparation import check_plan
from dagwright.settings import Settings
from dagwright.tools import GiveUp
from dagwright.tools.testing import tool_context
from dagwright.toolset.toolset import Toolset, load_toolset

FOLDER = Path(__file__).parents[2] / "examples" / "seeds"
PLAN_FILES = sorted(path.name for path in FOLDER.glob("*.json"))
EXPECTED_ERROR_CODES = {
    "intents_circular.json": ["cycle"],
    "intents_result_of_nothing.json": ["invalid_reference", "self_dependency"],
}
INPUTS = {
    "steps_reply_to_latest.json": {"reply_message": "On it."},
    "steps_meeting.json": {"meeting_title": "Kick-off", "start_time": "2024-02-01T10:00", "attendee_email": "a@b.c"},
}
EXPECTED_RESULTS: dict[str, dict[str, Any]] = {
    "tasks_age_difference.json": {"calculate_difference": 14},
    "steps_find_and_send.json": {"send_email": {"sent": True, "to": "john.smith@example.com"}},
    "steps_reply_to_latest.json": {
        "reply_to_email": {"sent": True, "thread": "thread_abc123", "subject": "Re: Q1 Report"}
    },
    "steps_meeting.json": {"create_meeting": {"event": "evt_1", "title": "Kick-off", "attendees": ["a@b.c"]}},
    "steps_exercise.json": {"D": {"sent": True, "to": "john.smith@example.com"}},
    "agents_paris.json": {
        "create_itinerary": {
            "plan": "Plan 3 days in Paris around these flights and hotels",
            "based_on": ["research_flights", "research_hotels"],
        }
    },
    "subgoals_single_intent.json": {"sg4": {"formatted_results": "| MAERSK | LOS ANGELES | 4120 |"}},
    "subgoals_comparison.json": {"sg7": {"analysis": "MAERSK moved 1.22 times as much as EVERGREEN"}},
}


@pytest.fixture
def toolset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Toolset:
    monkeypatch.setenv("DAGWRIGHT_STATE_DIR", str(tmp_path))
    return load_toolset(Settings(), [str(FOLDER / "tools.py")])


def call_tools(plan: CompiledPlan, toolset: Toolset, inputs: dict[str, Any]) -> dict[str, Any]:
    """Call every tool of the plan in topological order, without the scheduler; return the result of each node."""
    results: dict[str, Any] = {}
    levels = levels_of([node.dependencies for node in plan.nodes]) or []
    scope = Scope(
        get_node_value=lambda node_id, part: results[node_id] if part == "result" else "completed", inputs=inputs
    )
    for _, node in sorted(zip(levels, plan.nodes, strict=True), key=lambda pair: pair[0]):
        arguments = resolve_bindings(dict(node.arguments), node.bindings, scope=scope)
        spec = toolset.built_in.merge(toolset.user_tools)[node.tool]
        assert spec.function is not None
        with tool_context(node_id=node.id):
            value = spec.function(**spec.bind(arguments))
            result = asyncio.run(value) if spec.is_async else value
        results[node.id] = unwrap_worker_result(result).outputs if node.is_worker else result
    return results


def test_readme_lists_exactly_the_plans_of_the_folder() -> None:
    file_names = re.findall(r"examples/seeds/(\w+\.json)", (FOLDER / "README.md").read_text())
    assert sorted(set(file_names)) == PLAN_FILES


@pytest.mark.parametrize("name", PLAN_FILES)
def test_example_is_valid_or_has_the_expected_errors(name: str, toolset: Toolset) -> None:
    raw = read_plan_file(FOLDER / name)
    if name in EXPECTED_ERROR_CODES:
        with pytest.raises(PlanInvalid) as error:
            check_plan(raw, toolset.declarations())
        assert [problem.code for problem in error.value.problems] == EXPECTED_ERROR_CODES[name]
    else:
        checked_plan = check_plan(raw, toolset.declarations(), context={"cbu": "CBU-1"})
        assert list(checked_plan.inputs) == list(INPUTS.get(name, {}))


@pytest.mark.parametrize("name", EXPECTED_RESULTS)
def test_example_with_stub_tools_returns_the_expected_results(name: str, toolset: Toolset) -> None:
    plan = compile_plan(check_plan(read_plan_file(FOLDER / name), toolset.declarations()))
    results = call_tools(plan, toolset, INPUTS.get(name, {}))
    assert {
        node_id: json.loads(json.dumps(results[node_id])) for node_id in EXPECTED_RESULTS[name]
    } == EXPECTED_RESULTS[name]


def test_failing_exercise_fails_with_the_error_of_its_tool(toolset: Toolset) -> None:
    plan = compile_plan(check_plan(read_plan_file(FOLDER / "steps_exercise_failing.json"), toolset.declarations()))
    with pytest.raises(GiveUp, match="the mailbox is closed"):
        call_tools(plan, toolset, {})
    assert [list(node.dependencies) for node in plan.nodes] == [[], [0], [1], [0, 2]]
