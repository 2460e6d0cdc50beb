"""Nodes as columns: they come back as they were, and what cannot be nodes is refused."""

from typing import Any

import pydantic_core
import pytest

from dagwright.plan.compiled import CompiledNode
from dagwright.plan.node_columns import nodes_from_columns, nodes_to_columns
from tests.unit.plan.building import compiled, node, plan_of

_NODES = compiled(
    plan_of(
        node("a", timeout="5s", retry={"max_attempts": 2}, on_error={"value": True}),
        node("b", "a", arguments={"x": ["{{a.result.rows[0]}} of {{PLACEHOLDER_p}}"]}, on_error={"value": 1}),
        node("each", for_each="{{a.result}}", key="{{item.id}}", arguments={"x": "{{item}}"}),
        node("list", for_each=[1, "{{b.error}}"], max_parallel=1, priority=5),
        node("last", "a", "b", join={"at_least": 1}, when="a.result.n > 1", cache="off", on_error={"value": 0}),
        {"id": "sub", "plan": plan_of(node("a"))},
    )
).nodes


@pytest.mark.parametrize("nodes", [_NODES, _NODES[:1], _NODES[1:3], ()], ids=["all", "one", "two", "none"])
def test_nodes_come_back_as_they_were(nodes: tuple[CompiledNode, ...]) -> None:
    encoded = pydantic_core.from_json(pydantic_core.to_json(nodes_to_columns(nodes)))

    decoded = nodes_from_columns(encoded)

    assert [repr(each) for each in decoded] == [repr(each) for each in nodes]


def test_what_nodes_share_is_told_once_and_what_none_has_not_at_all() -> None:
    nodes = [CompiledNode(id=name, tool="any", dependencies=needs) for name, needs in (("a", ()), ("b", (0,)))]

    assert nodes_to_columns(nodes, {"kind": ["tool", "reported"]}) == {
        "same": {"tool": "any"},
        "each": {"id": ["a", "b"], "kind": ["tool", "reported"], "dependencies": [(), (0,)]},
    }


@pytest.mark.parametrize(
    "encoded",
    [
        None,
        [],
        {"same": {}, "each": {}},
        {"same": {}, "each": {"id": "ab"}},
        {"same": {}, "each": {"id": [1]}},
        {"same": {}, "each": {"id": ["a"], "tool": []}},
        {"same": {}, "each": {"id": ["a"], "tool": "t"}},
        {"same": {}, "each": {"id": ["a"], "dependencies": [None]}},
        {"same": {"kind": "unknown"}, "each": {"id": ["a"]}},
        {"same": {"kind": []}, "each": {"id": ["a"]}},
        {"same": {"retry": {"unknown": 1}}, "each": {"id": ["a"]}},
    ],
)
def test_what_is_no_page_of_nodes_is_refused(encoded: Any) -> None:
    with pytest.raises(ValueError, match="this is no part of a compiled plan"):
        nodes_from_columns(encoded)
