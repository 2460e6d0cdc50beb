"""Nodes for a plan that runs: what they may mean, and which declaration of a tool counts."""

from typing import Any

import pytest

from dagwright.contracts.agent_nodes import with_agents
from dagwright.plan.agent_cards import AgentCard
from dagwright.plan.agents import agent_declaration
from dagwright.plan.appending import extension_of
from dagwright.plan.compiled import agent_of
from dagwright.plan.errors import PlanInvalid
from dagwright.plan.extension import extended, extension_from_json
from dagwright.plan.stored import Part, Path, StoredValue
from dagwright.plan.tools import Effects, ToolDeclaration
from tests.unit.plan.building import node, scheduler_of, started

_MANY = 1_200


def test_declaration_of_the_plan_stands_above_what_the_sender_says() -> None:
    scheduler = scheduler_of(node("a"))
    told = ToolDeclaration("any", effects=Effects.READ, task_queue="elsewhere")
    extension = extension_of([node("b", "a")], scheduler, tools={"any": told})
    assert extension.tools["any"] == scheduler.plan.tools["any"]


@pytest.mark.parametrize("name", ["step 700", "a/b-700", "-700-", "700", "ä.700"])
@pytest.mark.parametrize(
    "fields",
    [
        {"depends_on": ["{name}"]},
        {"arguments": {"x": "{{{{{name}.result}}}}"}},
        {"arguments": {"x": ["of {{{{{name}.result.rows[0]}}}} and more"]}},
    ],
    ids=["dependency", "reference", "reference in a text"],
)
def test_node_of_a_large_plan_is_found_wherever_a_new_one_names_it(name: str, fields: dict[str, Any]) -> None:
    others = [node(f"n{number}") for number in range(_MANY)]
    scheduler = scheduler_of(*others, node(name))
    new = {"id": "new", "tool": "any", **_named(fields, name)}
    [added] = extension_of([new], scheduler, tools={}).nodes
    assert added.dependencies == (_MANY,)


def test_agents_that_a_model_does_are_sub_plans_of_what_is_added() -> None:
    card = AgentCard(name="w", description="Writes", objective_template="Write", type="llm", prompt="Write!")
    below = {"plan": 1, "nodes": [{"id": "in", "agent": "w", "objective": "Write"}]}
    new = [{"id": "b", "agent": "w", "objective": "Write"}, {"id": "c", "plan": below}]
    scheduler = scheduler_of(node("a"))
    scheduler.changes.with_agents = with_agents
    extension = extension_of(new, scheduler, tools={"agent.w": agent_declaration(card)})
    alone, beside = extension.nodes
    assert beside.sub_plan is not None
    assert [agent_of(each) for each in (alone, beside, *beside.sub_plan.nodes)] == ["w", None, "w"]
    assert (alone.kind, extension.tools) == ("plan", {})
    assert extension_from_json(extension.to_json()).to_json() == extension.to_json()


def test_id_that_the_plan_has_already_is_refused_in_a_large_plan() -> None:
    scheduler = scheduler_of(*[node(f"n{number}") for number in range(_MANY)])
    with pytest.raises(PlanInvalid, match="n7"):
        extension_of([node("n7")], scheduler, tools={})


def test_parts_of_large_results_are_told_by_calls_to_come_and_refused_of_those_that_were_made() -> None:
    scheduler = scheduler_of(node("made"), node("later", "made"), node("each", "later", for_each=[1, 2]))
    started(scheduler)
    told: dict[Path, Part] = {("known",): Part("small", 1)}
    scheduler.complete("made", StoredValue("ref", name="made.result", parts=told), at=1.0)
    new = [
        node("known", when="made.result.known == 1 && later.result.n > 5"),
        node("items", for_each="{{each.result[0].rows}}"),
        node("arguments", arguments={"x": "{{made.result.any[3]}}"}),
    ]
    extension = extension_of(new, scheduler, tools={})
    wanted = {name: [*parts] for name, parts in extension_from_json(extension.to_json()).wanted.items()}
    assert wanted == {
        "made": [(("known",), "whole"), (("any", 3), "value")],
        "later": [(("n",), "whole")],
        "each": [((0, "rows"), "whole")],
    }
    plan = extended(scheduler.plan, extension)
    assert [plan.nodes[number].wanted for number in (1, 2)] == [((("n",), "whole"),), ((("rows",), "whole"),)]

    late = [node("x", when="made.result.n > 5"), node("y", "x", for_each="{{made.result.rows}}")]
    with pytest.raises(PlanInvalid) as refused:
        extension_of(late, scheduler, tools={})
    problems = refused.value.problems
    assert [(problem.code, problem.pointer, problem.message.partition(" ")[0]) for problem in problems] == [
        ("too_large", "/nodes/0", "made.result.n"),
        ("too_large", "/nodes/1", "made.result.rows"),
    ]


def _named(value: Any, name: str) -> Any:
    if isinstance(value, str):
        return value.format(name=name)
    if isinstance(value, dict):
        return {key: _named(part, name) for key, part in value.items()}
    return [_named(part, name) for part in value]
