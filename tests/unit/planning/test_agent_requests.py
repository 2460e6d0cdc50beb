"""Requests of an agent to a person, in the text of an answer or as a tool call, and error messages to the model."""

from typing import Any

import pytest

from dagwright.features.run_scheduler import RunScheduler, create_scheduler
from dagwright.planning.agent_loop.agent_extender import AgentLoop
from dagwright.planning.agent_loop.feedback_markers import find_marker, parse_answer
from dagwright.planning.agent_loop.spec import AgentSpec, agent_plan, agent_spec_from_json
from tests.support.plan_building import ids_of, start_ready_tasks

AGENT = AgentSpec("helper", feedback_policy="on_request")
AMOUNT_SCHEMA = {"type": "object", "properties": {"amount": {"type": "number"}}, "required": ["amount"]}
AMOUNT_SCHEMA_TEXT = '{"type": "object", "properties": {"amount": {"type": "number"}}, "required": ["amount"]}'
NESTED_SCHEMA_TEXT = '{"enum": [[1, 2], ["a|b]]"]]}'


PROMPTS_BY_TYPE = {"CLARIFICATION": "Which?", "APPROVAL": "May I?", "GUIDANCE": "How?", "INFORMATION": "How much?"}


def _request(request_type: str, prompt: str, **fields: Any) -> dict[str, Any]:
    return {"type": request_type, "prompt": prompt, **fields}


_NESTED_SCHEMA_REQUEST = _request("INFORMATION", "Which | of these?", schema={"enum": [[1, 2], ["a|b]]"]]})
_AMOUNT_REQUEST = _request("INFORMATION", "How much?", schema=AMOUNT_SCHEMA)


@pytest.mark.parametrize(
    ("marker", "request_document"),
    [
        *((f"[[FEEDBACK {name}: {prompt}]]", _request(name, prompt)) for name, prompt in PROMPTS_BY_TYPE.items()),
        ("[[FEEDBACK SELECTION: Which? | a | b]]", _request("SELECTION", "Which?", options=["a", "b"])),
        (f"[[feedback information: x]] [[FEEDBACK information: How much? | {AMOUNT_SCHEMA_TEXT}]]", _AMOUNT_REQUEST),
        (f"[[FEEDBACK INFORMATION: How much?\n|\n{AMOUNT_SCHEMA_TEXT}\n]]", _AMOUNT_REQUEST),
        (f"[[FEEDBACK INFORMATION: Which | of these? | {NESTED_SCHEMA_TEXT}]]", _NESTED_SCHEMA_REQUEST),
    ],
)
def test_marker_of_every_request_type_is_parsed(marker: str, request_document: dict[str, Any]) -> None:
    parsed_answer = parse_answer(f"Before. {marker} after", AGENT)
    assert (parsed_answer.request, parsed_answer.problem) == (request_document, "")
    assert (parsed_answer.text[:7], parsed_answer.text[-6:]) == ("Before.", " after")
    assert "amount" not in parsed_answer.text
    # The marker is also found in a very long answer.
    found_marker = find_marker("x" * 100_000 + marker)
    assert found_marker is not None
    assert parse_answer(found_marker, AGENT).request == request_document


def _started_agent() -> RunScheduler:
    scheduler = create_scheduler(agent_plan(AGENT, prompt="", result_titles={}), {"objective": "Pay."})
    scheduler.features.extension.set_extender(AgentLoop(AGENT))
    scheduler.start(0.0)
    return scheduler


def _request_type_and_schema(scheduler: RunScheduler, task_id: str) -> tuple[str, Any]:
    request = scheduler.features.feedback.requests.of_task(task_id)
    assert request is not None
    return request.type, request.schema


def test_invalid_schema_is_reported_to_the_model() -> None:
    invalid_marker = '[[FEEDBACK INFORMATION: How much? | {"type": "nmber"}]]'
    marker_with_invalid_json = invalid_marker.replace('"nmber"', "")
    for marker, problem in (
        (marker_with_invalid_json, "the schema of an INFORMATION request is not a JSON object"),
        (invalid_marker, "schema: "),
    ):
        parsed_answer = parse_answer(f"Before. {marker}", AGENT)
        assert (parsed_answer.text, parsed_answer.request, problem in parsed_answer.problem) == ("Before.", None, True)
        assert parsed_answer.problem.endswith("; write [[FEEDBACK INFORMATION: question | {JSON Schema}]]")
    scheduler = _started_agent()
    start_ready_tasks(scheduler)
    scheduler.complete("turn1", _response(invalid_marker), at=1.0)
    (turn,) = start_ready_tasks(scheduler)
    prompt = turn.arguments["messages"][-1]["content"]
    assert prompt.startswith("No request was sent: invalid question: schema: ")
    assert prompt.endswith("Ask again or answer without asking.")
    scheduler.complete("turn2", _response(f"[[FEEDBACK INFORMATION: How much? | {AMOUNT_SCHEMA_TEXT}]]"), at=2.0)
    assert ids_of(start_ready_tasks(scheduler)) == []
    assert _request_type_and_schema(scheduler, "turn2.ask") == ("INFORMATION", AMOUNT_SCHEMA)


def test_tool_call_requests_information_only_with_a_valid_schema() -> None:
    scheduler = _started_agent()
    (turn,) = start_ready_tasks(scheduler)
    (tool,) = turn.arguments["tools"]
    assert tool["parameters"]["properties"]["type"]["enum"][3] == "INFORMATION"
    schemas = ('{"type": "nmber"}', AMOUNT_SCHEMA_TEXT)
    calls = [
        {"id": f"c{number}", "name": "ask_person", "arguments": f'{{"prompt": "How much?", "schema": {schema}}}'}
        for number, schema in enumerate(schemas)
    ]
    scheduler.complete("turn1", _response(None, calls), at=1.0)
    start_ready_tasks(scheduler)
    assert scheduler.features.feedback.requests.of_task("turn1.1") is None
    assert _request_type_and_schema(scheduler, "turn1.2") == ("INFORMATION", AMOUNT_SCHEMA)


def test_agent_saved_without_request_types_cannot_request_information() -> None:
    encoded_agent = AGENT.to_json()
    del encoded_agent["request_types"]
    agent_without_types = agent_spec_from_json(encoded_agent)
    parsed_answer = parse_answer('[[FEEDBACK INFORMATION: How much? | {"type": }]]', agent_without_types)
    assert parsed_answer.request == {"type": "CLARIFICATION", "prompt": 'How much? | {"type": }'}
    assert "schema" not in agent_without_types.offered_tools[0].parameters["properties"]
    assert agent_spec_from_json(AGENT.to_json()) == AGENT


def _response(text: str | None, calls: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    message = {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})}
    return {"message": message, "finish_reason": "stop", "model": "m", "usage": {}, "conversation": "ref"}
