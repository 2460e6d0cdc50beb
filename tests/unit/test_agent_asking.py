"""Questions of agents in the words of an answer: which type they become, and what goes back to the model."""

from typing import Any

import pytest

from dagwright.core.scheduler.scheduler import Scheduler
from dagwright.planning.agent_loop.asking import marker_in, read_said
from dagwright.planning.agent_loop.loop import AgentPursuit
from dagwright.planning.agent_loop.spec import AgentSpec, agent_plan, spec_from_json
from tests.unit.plan.building import ids_of, started

ASKING = AgentSpec("helper", feedback_policy="on_request")
AMOUNT = {"type": "object", "properties": {"amount": {"type": "number"}}, "required": ["amount"]}
IN_JSON = '{"type": "object", "properties": {"amount": {"type": "number"}}, "required": ["amount"]}'
NESTED = '{"enum": [[1, 2], ["a|b]]"]]}'


@pytest.mark.parametrize(
    ("marker", "question"),
    [
        ("[[FEEDBACK CLARIFICATION: Which?]]", {"type": "CLARIFICATION", "prompt": "Which?"}),
        ("[[FEEDBACK APPROVAL: May I?]]", {"type": "APPROVAL", "prompt": "May I?"}),
        ("[[FEEDBACK SELECTION: Which? | a | b]]", {"type": "SELECTION", "prompt": "Which?", "options": ["a", "b"]}),
        ("[[FEEDBACK GUIDANCE: How?]]", {"type": "GUIDANCE", "prompt": "How?"}),
        ("[[FEEDBACK INFORMATION: How much?]]", {"type": "INFORMATION", "prompt": "How much?"}),
        (f"[[feedback information: x]] [[FEEDBACK information: How much? | {IN_JSON}]]",
         {"type": "INFORMATION", "prompt": "How much?", "schema": AMOUNT}),
        (f"[[FEEDBACK INFORMATION: How much?\n|\n{IN_JSON}\n]]",
         {"type": "INFORMATION", "prompt": "How much?", "schema": AMOUNT}),
        (f"[[FEEDBACK INFORMATION: Which | of these? | {NESTED}]]",
         {"type": "INFORMATION", "prompt": "Which | of these?", "schema": {"enum": [[1, 2], ["a|b]]"]]}}),
    ],
)  # fmt: skip
def test_all_five_types_are_asked_by_a_marker(marker: str, question: dict[str, Any]) -> None:
    said = read_said(f"Before. {marker} after", ASKING)
    assert (said.question, said.problem) == (question, "")
    assert said.text.startswith("Before.")
    assert said.text.endswith(" after")
    assert "amount" not in said.text
    # The same in an answer that lies in the payload store.
    long = marker_in("x" * 100_000 + marker)
    assert long is not None
    assert read_said(long, ASKING).question == question


@pytest.mark.parametrize(
    ("marker", "problem"),
    [
        ('[[FEEDBACK INFORMATION: How much? | {"type": }]]', "the schema of an INFORMATION is not one JSON object"),
        ('[[FEEDBACK INFORMATION: How much? | {"type": "nmber"}]]', "schema: "),
    ],
)
def test_invalid_schema_is_a_problem_for_the_model(marker: str, problem: str) -> None:
    said = read_said(f"Before. {marker}", ASKING)
    assert (said.text, said.question) == ("Before.", None)
    assert problem in said.problem
    assert said.problem.endswith("; write [[FEEDBACK INFORMATION: question | {JSON Schema}]]")


def test_model_that_writes_an_invalid_schema_is_asked_again() -> None:
    scheduler = Scheduler(agent_plan(ASKING, prompt="", results={}), {"objective": "Pay."})
    scheduler.pursuit = AgentPursuit(ASKING)
    scheduler.begin(0.0)
    started(scheduler)
    scheduler.complete("turn1", _said('[[FEEDBACK INFORMATION: How much? | {"type": "nmber"}]]'), at=1.0)
    (turn,) = started(scheduler)
    words = turn.arguments["messages"][-1]["content"]
    assert words.startswith("No request was sent: what the tool asks is no question: schema: ")
    assert words.endswith("Ask again, or answer without asking.")
    scheduler.complete("turn2", _said(f"[[FEEDBACK INFORMATION: How much? | {IN_JSON}]]"), at=2.0)
    assert ids_of(started(scheduler)) == []
    request = scheduler.requests.of_task("turn2.ask")
    assert request is not None
    assert (request.type, request.schema) == ("INFORMATION", AMOUNT)


def test_information_is_asked_by_a_tool_with_a_schema() -> None:
    scheduler = Scheduler(agent_plan(ASKING, prompt="", results={}), {"objective": "Pay."})
    scheduler.pursuit = AgentPursuit(ASKING)
    scheduler.begin(0.0)
    (turn,) = started(scheduler)
    (tool,) = turn.arguments["tools"]
    assert tool["parameters"]["properties"]["type"]["enum"][3] == "INFORMATION"
    wrong = '{"prompt": "How much?", "schema": {"type": "nmber"}}'
    right = f'{{"prompt": "How much?", "schema": {IN_JSON}}}'
    calls = [{"id": f"c{place}", "name": "ask_person", "arguments": text} for place, text in enumerate([wrong, right])]
    scheduler.complete("turn1", _said(None, calls), at=1.0)
    started(scheduler)
    assert scheduler.requests.of_task("turn1.1") is None
    request = scheduler.requests.of_task("turn1.2")
    assert request is not None
    assert (request.type, request.schema) == ("INFORMATION", AMOUNT)


def test_agent_of_a_run_started_before_asks_as_it_did() -> None:
    encoded = ASKING.to_json()
    del encoded["request_types"]
    before = spec_from_json(encoded)
    said = read_said('[[FEEDBACK INFORMATION: How much? | {"type": }]]', before)
    assert said.question == {"type": "CLARIFICATION", "prompt": 'How much? | {"type": }'}
    assert "schema" not in before.offered[0].parameters["properties"]
    assert spec_from_json(ASKING.to_json()) == ASKING


def _said(text: str | None, calls: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    message = {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})}
    return {"message": message, "finish_reason": "stop", "model": "m", "usage": {}, "conversation": "ref"}
