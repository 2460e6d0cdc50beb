"""The planning benchmark with the scripted model: scores, output and saved results."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from benchmarks.planning.cases import read_cases
from benchmarks.planning.planned_requests import PlannedRequest, plan_all
from benchmarks.planning.report import report_to_json, score_table
from dagwright.llm import Endpoint, ModelClient
from dagwright.planner import PlanningOptions
from dagwright.planner.plan_parser import parse_plan
from dagwright.testing import ModelServer, Step, When, json_text, step
from tests.support.programs import start_program

pytestmark = pytest.mark.waits

ROOT = Path(__file__).parents[3]
CASES = read_cases()


def expected_plan(index: int) -> dict[str, Any]:
    """Return the expected plan of a request in the form of a model response."""
    return {"nodes": CASES.requests[index].plan["nodes"]}


def prompt_end(index: int) -> str:
    """Return the end of the prompt for the plan of a request."""
    return f"\n\nRequest:\n{CASES.requests[index].text}"


def expected_plan_steps(*omitted_indexes: int) -> list[Step]:
    """Script the expected plan of each request that is not omitted; calls may come in any order."""
    indexes = [index for index in range(len(CASES.requests)) if index not in omitted_indexes]
    return [step(json_text(expected_plan(index)), when=When(last=prompt_end(index))) for index in indexes]


async def plan_requests(server: ModelServer, **options: Any) -> list[PlannedRequest]:
    async with ModelClient(Endpoint(server.base_url, "key"), model="small") as client:
        return await plan_all(CASES, client, options=PlanningOptions(**options), max_concurrent=4)


@pytest.mark.parametrize("index", range(len(CASES.requests)))
def test_expected_plan_of_each_request_is_valid(index: int) -> None:
    parsed_plan = parse_plan(expected_plan(index), "", CASES.tools)
    assert parsed_plan.notes == []
    assert len(parsed_plan.planned_nodes.nodes) == len(expected_plan(index)["nodes"])


def test_expected_plans_use_every_tool() -> None:
    assert {tool for case in CASES.requests for tool in case.facts.tools} == {*CASES.tools, "human"}


async def test_model_that_returns_the_expected_plans_has_full_scores() -> None:
    async with ModelServer(*expected_plan_steps()) as server:
        planned_requests = await plan_requests(server)
    assert [each.case.text for each in planned_requests] == [case.text for case in CASES.requests]
    lines = score_table(planned_requests).splitlines()
    assert lines[2:7] == [
        "| plans that can be run | 20 of 20 | 20 of 20 |",
        "| node F1 | 1.000 | 1.000 |",
        "| edge F1 | 1.000 | 1.000 |",
        "| argument F1, names | 1.000 | 1.000 |",
        "| argument F1, names and values | 1.000 | 1.000 |",
    ]
    assert lines[8].startswith("20 calls, ")
    assert [call.metadata["purpose"] for call in server.calls] == ["plan"] * 20
    assert {call.response_format for call in server.calls} == {"json_schema"}


async def test_repaired_plan_counts_only_after_repair_and_an_invalid_plan_never_counts() -> None:
    invalid_text = json_text({"nodes": [{"id": "a", "tool": "weather", "arguments": {"city": "Oslo"}}]})
    repair_step = step(json_text(expected_plan(0)), when=When(text=prompt_end(0), last="This plan cannot be run:\n"))
    steps = [
        step(invalid_text, when=When(last=prompt_end(0))),
        repair_step,
        step("No.", when=When(text=prompt_end(1)), times=3),
    ]
    async with ModelServer(*steps, *expected_plan_steps(0, 1)) as server:
        planned_requests = await plan_requests(server, max_plans=3)
    assert [len(each.attempts) for each in planned_requests] == [2, 3, *[1] * 18]
    actual = report_to_json(planned_requests, model="small")
    assert (actual["first"]["valid"], actual["after_repair"]["valid"], actual["usage"]["calls"]) == (18, 19, 23)
    assert actual["requests"][0]["tries"][0]["problems"][0]["code"] == "invalid_arguments"
    problems = [problem.to_json() for problem in planned_requests[1].attempts[2].problems]
    assert actual["requests"][1]["tries"][2] == {"text": "No.", "valid": False, "problems": problems}
    tool_counts = [len(case.facts.tools) for case in CASES.requests]
    matched_count = sum(tool_counts[2:])
    node_f1 = 2 * matched_count / (2 * matched_count + tool_counts[0] + tool_counts[1])
    assert actual["first"]["node_f1"] == pytest.approx(node_f1)
    lines = score_table(planned_requests).splitlines()
    assert lines[2] == "| plans that can be run | 18 of 20 | 19 of 20 |"
    assert lines[-2] == "Without a plan:"
    assert lines[-1].startswith("- How much is 17 * 23 + 4?: ")


async def test_command_prints_the_table_and_saves_the_responses(tmp_path: Path) -> None:
    saved_file = tmp_path / "saved.json"
    async with ModelServer(*expected_plan_steps()) as server:
        options = ["--model", "small", "--base-url", server.base_url, "--temperature", "0", "--save", str(saved_file)]
        environment = {**os.environ, "OPENAI_API_KEY": "key"}
        process = await start_program(("-m", "benchmarks.planning"), options, folder=ROOT, environment=environment)
        output, _ = await process.communicate()
    assert process.returncode == 0
    assert output.decode().startswith("small\n\n| | first plans | after repair |\n")
    actual = json.loads(saved_file.read_text(encoding="utf-8"))
    assert [*actual] == ["model", "first", "after_repair", "usage", "requests"]
    assert actual["after_repair"]["valid"] == 20
    assert {(call.model, call.body["temperature"], call.api_key) for call in server.calls} == {("small", 0.0, "key")}
