"""Tools of the MCP server on real runs: results, progress, forms, and calls that end before their run."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from mcp.shared.exceptions import MCPError

from tests.support.eventually import eventually
from tests.support.mcp_clients import MODES, McpHarness, Person
from tests.support.people import hold_node, human_node
from tests.support.plan_building import plan_of
from tests.support.runs import Runs
from tests.support.tools import CallHarness
from tests.workflow.building import Gate

pytestmark = pytest.mark.server

in_both_modes = pytest.mark.parametrize("mode", MODES)
"""Run a test with each mode (protocol version). The modes differ in progress, forms and cancellation."""


_DOUBLE_PLAN_TEXT = """
plan: 1
title: Double
metadata: {description: Doubles a number.}
inputs: {value: {type: number, prompt: Which number?}}
nodes: [{id: sum, tool: plus, arguments: {left: "{{PLACEHOLDER_value}}", right: "{{PLACEHOLDER_value}}"}}]
output: "{{sum.result}}"
"""


@pytest.fixture
def mode() -> str:
    return MODES[-1]


@pytest.fixture
async def mcp(cached_runs: Runs, harness: CallHarness, tmp_path: Path) -> AsyncIterator[McpHarness]:
    (tmp_path / "plans").mkdir()
    (tmp_path / "plans" / "double.yaml").write_text(_DOUBLE_PLAN_TEXT, encoding="utf-8")
    yield McpHarness(cached_runs, harness, tmp_path)
    await cached_runs.check_runs()


def _sum_node(node_id: str, left: Any, right: Any, **fields: Any) -> dict[str, Any]:
    return {"id": node_id, "tool": "plus", "arguments": {"left": left, "right": right}, **fields}


@in_both_modes
async def test_run_plan_applies_inputs_and_reports_progress(mcp: McpHarness, mode: str) -> None:
    plan = plan_of(
        _sum_node("a", "{{PLACEHOLDER_n}}", 1),
        _sum_node("b", "{{a.result}}", 1),
        inputs={"n": {"type": "number"}},
        output="{{b.result}}",
    )
    async with mcp.client(mode) as call:
        result = await call("run_plan", plan=plan, inputs={"n": 3})
    expected = {"status": "completed", "output": 5, "node_counts": {"completed": 2}}
    assert {key: result[key] for key in ("status", "output", "node_counts")} == expected
    messages = [message for _, _, message in call.progress if message and message.endswith("completed")]
    progress_values = [progress for progress, _, _ in call.progress]
    assert messages == ["a completed", "b completed"]
    assert (progress_values, progress_values[-1]) == (sorted(set(progress_values)), 2.0)


async def test_template_is_a_tool_with_the_schema_of_its_inputs(mcp: McpHarness, mode: str) -> None:
    async with mcp.client(mode) as call:
        tools = {tool.name: tool for tool in (await call.client.list_tools()).tools}
        result = await call("double", value=4)
        invalid_result = await call.error_result("double", valu=4)
    expected = ["run_plan", "check_plan", "ask", "get_run", "list_runs", "answer_feedback", "cancel", "double"]
    assert list(tools) == expected
    assert tools["double"].title == "Double"
    assert (tools["double"].description or "").startswith("Doubles a number. ")
    assert tools["double"].input_schema == {
        "type": "object",
        "properties": {"value": {"type": "number", "description": "Which number?"}},
        "required": ["value"],
        "additionalProperties": False,
    }
    assert (result["status"], result["title"], result["output"]) == ("completed", "Double", 8)
    assert invalid_result["code"] == "invalid_value"
    assert "unknown argument 'valu'" in invalid_result["message"]


async def test_repeated_start_with_the_same_id_or_key_returns_the_existing_run(mcp: McpHarness, mode: str) -> None:
    run_id = f"mine-{uuid4().hex[:8]}"
    async with mcp.client(mode) as call:
        arguments: dict[str, Any] = {"template": "double", "inputs": {"value": 4}, "run_id": run_id}
        started_result = await call("run_plan", **arguments, wait_s=0)
        result = await call("get_run", run_id=run_id)
        repeated_result = await call("run_plan", **arguments)

        async def is_listed() -> bool:
            return run_id in [run["run_id"] for run in (await call("list_runs", limit=200))["runs"]]

        await eventually(is_listed)
        meta: Any = {"dagwright/idempotencyKey": run_id}
        keyed_result = await call.client.call_tool("double", {"value": 4}, meta=meta)
    assert started_result["run_id"] == keyed_result.structured_content["run_id"] == run_id
    assert (result["output"], repeated_result["run_id"], repeated_result["output"]) == (8, run_id, 8)


@in_both_modes
async def test_person_answers_in_a_form_of_the_client(mcp: McpHarness, mode: str) -> None:
    person = Person(lambda _: {"approved": True, "reason": "fine"})
    plan = plan_of(human_node("check"), _sum_node("b", 1, 1, depends_on=["check"]), output="{{check.result}}")
    async with mcp.client(mode, person) as call:
        result = await call("run_plan", plan=plan)
    assert (result["status"], result["output"]) == ("completed", {"approved": True, "reason": "fine"})
    assert person.forms == [
        (
            "What of check?",
            {
                "type": "object",
                "properties": {
                    "approved": {"type": "boolean", "title": "Approve"},
                    "reason": {"type": "string", "title": "Reason"},
                },
                "required": ["approved"],
            },
        )
    ]
    view = await mcp.client_runs.reader(result["run_id"]).read()
    [answer] = view.document()["nodes"]["check"]["lineage"]["answers"]
    assert answer["by"] == "probe (MCP)"


@in_both_modes
@pytest.mark.parametrize("has_forms", [True, False])
async def test_unanswered_request_is_reported_with_instructions(mcp: McpHarness, mode: str, has_forms: bool) -> None:
    person = Person(lambda _: None) if has_forms else None
    async with mcp.client(mode, person) as call:
        result = await call("run_plan", plan=plan_of(human_node("check"), output="{{check.result.approved}}"))
        run_id = result["run_id"]
        assert result["status"] == "waiting"
        assert result["message"] == (
            "The run waits for people: What of check? To answer, "
            f"call answer_feedback with run_id '{run_id}', request_id 'check' and approved."
        )
        assert [request["request_id"] for request in result["waiting_for"]] == ["check"]
        two_answers_error = await call.error_result("answer_feedback", run_id=run_id, approved=True, text="yes")
        wrong_type_error = await call.error_result("answer_feedback", run_id=run_id, text="yes")
        final_result = await call("answer_feedback", run_id=run_id, approved=True)
        late_answer_error = await call.error_result("answer_feedback", run_id=run_id, request_id="check", approved=True)
    assert two_answers_error["message"].startswith("send exactly one of approved, selected, text, data")
    assert wrong_type_error["code"] == "answer_rejected"
    assert "approved" in wrong_type_error["message"]
    assert (final_result["status"], final_result["output"]) == ("completed", True)
    assert final_result["message"] == "'check' is answered. The run completed."
    assert late_answer_error["message"] == f"the run '{run_id}' has ended; get_run returns its state"


async def test_answer_applies_to_one_request_or_to_all_requests_of_a_node(mcp: McpHarness, mode: str) -> None:
    request_node = human_node("each") | {"for_each": ["a", "b", "c"]}
    async with mcp.client(mode) as call:
        run_id = (await call("run_plan", plan=plan_of(request_node)))["run_id"]
        ambiguous_error = await call.error_result("answer_feedback", run_id=run_id, approved=True)
        invalid_result = await call.error_result(
            "answer_feedback", run_id=run_id, request_id="each[1]", text="no", value=3
        )
        partial_result = await call(
            "answer_feedback", run_id=run_id, request_id="each[1]", approved=False, reason="no", wait_s=1
        )
        final_result = await call("answer_feedback", run_id=run_id, request_id="each", all=True, approved=True)
    open_requests = "each[0], each[1], each[2]"
    expected = f"the run '{run_id}' has 3 open requests; name one in `request_id`: {open_requests}"
    assert ambiguous_error["message"] == expected
    assert invalid_result["code"] == "answer_rejected"
    assert [request["request_id"] for request in partial_result["waiting_for"]] == ["each[0]", "each[2]"]
    # The map is counted as one node.
    assert partial_result["node_counts"] == {"running": 1}
    assert final_result["status"] in ("completed", "completed_with_failures")


@in_both_modes
async def test_invalid_answer_is_reported_and_the_request_stays_open(mcp: McpHarness, mode: str) -> None:
    person = Person(lambda _: {"amount": 3})
    form = {"type": "object", "properties": {"amount": {"type": "integer", "multipleOf": 2}}}
    async with mcp.client(mode, person) as call:
        result = await call("run_plan", plan=plan_of(human_node("form", "INFORMATION", schema=form)))
        assert result["status"] == "waiting"
        assert result["message"].startswith("The answer to 'form' was rejected: ")
        final_result = await call("answer_feedback", run_id=result["run_id"], data={"amount": 4})
    assert (final_result["status"], len(person.forms)) == ("completed", 1)


async def test_plan_with_effects_needs_an_approval(mcp: McpHarness, mode: str) -> None:
    person = Person(lambda _: {"approved": False})
    plan = plan_of({"id": "send", "tool": "change", "arguments": {"name": "mcp"}})
    async with mcp.client(mode, person) as call:
        check_result = await call("check_plan", plan=plan)
        result = await call.result("run_plan", plan=plan)
    assert check_result["needs_approval"] is True
    assert result.is_error
    assert result.structured_content["status"] in ("failed", "cancelled")
    assert "send" in person.forms[0][0]


async def test_call_with_a_limited_wait_returns_before_the_end_of_the_run(
    mcp: McpHarness, mode: str, gate: Gate
) -> None:
    plan = plan_of(hold_node("long", gate.name))
    async with mcp.client(mode) as call:
        result = await call("run_plan", plan=plan, wait_s=0, run_id=gate.name)
        repeated_result = await call("run_plan", plan=plan, wait_s=0, run_id=gate.name)
        conflict_error = await call.error_result(
            "run_plan", plan=plan_of(_sum_node("a", 1, 1)), wait_s=0, run_id=gate.name
        )
        gate.open()
        final_result = await call("get_run", run_id=gate.name)
    assert (result["status"], result["run_id"]) == ("running", gate.name)
    assert result["message"] == f"The run continues. Call get_run with run_id '{gate.name}' to wait for its end."
    assert (repeated_result["status"], conflict_error["code"]) == ("running", "run_id_in_use")
    assert (final_result["status"], final_result["output"]) == ("completed", {"long": gate.name})


@in_both_modes
async def test_cancelled_call_does_not_cancel_its_run(mcp: McpHarness, mode: str, gate: Gate) -> None:
    plan = plan_of(hold_node("long", gate.name))
    async with mcp.client(mode) as call:
        call_task = asyncio.create_task(call("run_plan", plan=plan, run_id=gate.name))
        await gate.wait_for_call()
        call_task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call_task
        gate.open()
        final_result = await call("get_run", run_id=gate.name)
    mcp.runs.include_in_checks(mcp.runs.client.get_workflow_handle(gate.name))
    assert final_result["status"] == "completed"


async def test_tool_cancel_cancels_a_run(mcp: McpHarness, mode: str, unique_name: str) -> None:
    plan = plan_of(hold_node("long", unique_name))
    async with mcp.client(mode) as call:
        await call("run_plan", plan=plan, wait_s=0, run_id=unique_name)
        result = await call("cancel", run_id=unique_name, reason="enough")
        final_result = await call.error_result("get_run", run_id=unique_name)
    assert (result["status"], result["run_id"]) == ("cancelling", unique_name)
    assert final_result["status"] == "cancelled"


async def test_invalid_calls_are_reported_with_hints(mcp: McpHarness, mode: str, unique_name: str) -> None:
    async with mcp.client(mode) as call:
        invalid_result = await call.error_result("run_plan", plan=plan_of({"id": "a", "tool": "pluss"}))
        syntax_error = await call.error_result("check_plan", plan="nodes: [")
        missing_input_result = await call.error_result("run_plan", plan=plan_of(_sum_node("a", "{{PLACEHOLDER_n}}", 1)))
        unknown_run_error = await call.error_result("get_run", run_id=unique_name)
        unknown_request_error = await call.error_result("answer_feedback", run_id=unique_name, approved=True)
        missing_model_error = await call.error_result("ask", request="Do it.")
        plan = plan_of(_sum_node("a", 1, 1))
        unknown_argument_error = await call.error_result("run_plan", plan=plan, deadlin="soon")
        invalid_deadline_error = await call.error_result("run_plan", plan=plan, deadline="soon")
        invalid_run_id_error = await call.error_result("run_plan", plan=plan, run_id="x" * 2_000)
        with pytest.raises(MCPError, match="there is no tool 'fly'; `tools/list` lists all tools"):
            await call.client.call_tool("fly", {})
        with pytest.raises(MCPError, match="there is no tool 'run_plann'; did you mean 'run_plan'"):
            await call.client.call_tool("run_plann", {})
    assert [(error["code"], error["pointer"]) for error in invalid_result["errors"]] == [
        ("unknown_tool", "/nodes/0/tool")
    ]
    assert invalid_result["errors"][0]["hint"] == "did you mean 'plus'?"
    assert syntax_error["errors"][0]["code"] == "invalid_syntax"
    assert (missing_input_result["status"], missing_input_result["errors"][0]["hint"]) == (
        "invalid",
        "add it to the inputs",
    )
    assert unknown_run_error == {"code": "not_found", "message": f"there is no run '{unique_name}'"}
    assert unknown_request_error["code"] == "not_found"
    expected = ("model_not_set", "no model is configured: set DAGWRIGHT_MODEL for this server")
    assert (missing_model_error["code"], missing_model_error["message"]) == expected
    assert unknown_argument_error["code"] == "invalid_value"
    assert "did you mean 'deadline'?" in unknown_argument_error["message"]
    assert (invalid_deadline_error["code"], invalid_deadline_error["message"][:10]) == ("invalid_value", "deadline: ")
    assert invalid_run_id_error["code"] == "invalid_run_id"
