"""What a newcomer reads after a mistake in a field: what is wrong, where, what to write, and nothing that follows."""

from typing import Any

import pytest

from dagwright.plan.tools import ToolDeclaration
from tests.unit.plan.building import node, plan_of, problems_of


def _told(*nodes: Any, **fields: Any) -> list[tuple[str, str | None, str, str | None]]:
    return [(each.pointer, each.node, each.message, each.hint) for each in problems_of(plan_of(*nodes, **fields))]


@pytest.mark.parametrize(
    ("fields", "at", "message", "hint"),
    [
        (
            {"retry": {"max_atempts": 2}},
            "/retry/max_atempts",
            "unknown field 'retry.max_atempts'; allowed are max_attempts, first_delay, factor, max_delay",
            "did you mean 'max_attempts'?",
        ),
        (
            {"human": {"promt": "?"}, "tool": None},
            "/human/promt",
            "unknown field 'human.promt'; allowed are prompt, ",
            "did you mean 'prompt'?",
        ),
        (
            {"approval": {"promt": "?"}},
            "/approval/promt",
            "unknown field 'approval.promt'; allowed are prompt, ",
            "did you mean 'prompt'?",
        ),
        (
            {"argument": {"x": 1}},
            "/argument",
            "unknown field 'argument'; allowed are arguments, ",
            "did you mean 'arguments'?",
        ),
        (
            {"human": {"type": "APPROVL"}, "tool": None},
            "/human/type",
            "human.type: expected",
            "did you mean 'APPROVAL'?",
        ),
        ({"join": "al"}, "/join", "join: expected all, any", "did you mean 'all'?"),
        ({"on_error": "skp"}, "/on_error", "on_error: expected block, skip", "did you mean 'skip'?"),
        ({"depends_on": "x"}, "/depends_on", "depends_on: expected a list of node ids, not 'x'", "write [x]"),
        ({"timeout": 30}, "/timeout", "timeout: expected a duration such as 30s, not 30", "write 30s for seconds"),
        ({"retry": 3}, "/retry", "retry: expected an object, not 3", "write {max_attempts: 3}"),
    ],
)
def test_wrong_field_is_the_only_problem(fields: dict[str, Any], at: str, message: str, hint: str) -> None:
    [(place, node_id, told, advice)] = _told(node("a", **fields))
    assert (place, node_id, advice) == (f"/nodes/0{at}", "a", hint)
    assert told.startswith(message)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"id": "a", "tol": "any"}, ["/nodes/0/tol"]),
        ({"id": "a", "tool": "typed", "argument": {"name": "xx"}}, ["/nodes/0/argument"]),
        ({"id": "a", "tool": "typed", "arguments": [1]}, ["/nodes/0/arguments"]),
        ({"id": "a", "tool": "typed", "arguments": {"nam": "xx"}}, ["/nodes/0/arguments/nam"]),
        ({"id": "a", "tool": "any", "foreach": [1], "key": "{{item}}"}, ["/nodes/0/foreach", "/nodes/0/key"]),
        ({"id": "a", "tool": "any", "join": {"at_least": 1}, "depends_on": "b"}, ["/nodes/0/depends_on"]),
        ("a", ["/nodes/0"]),
    ],
)
def test_nothing_is_concluded_from_a_field_that_is_wrong(raw: Any, expected: list[str]) -> None:
    assert [each[0] for each in _told(raw)] == expected


def test_unknown_version_says_which_one_is_read() -> None:
    assert _told(node("a"), plan=2) == [
        (
            "/plan",
            None,
            "plan: this program reads plans of version 1, not 2",
            "write plan: 1; a later version needs a newer Dagwright",
        )
    ]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("int", "integer"),
        ("str", "string"),
        ("bool", "boolean"),
        ("list", "array"),
        ("dict", "object"),
        ("float", "number"),
        ("strng", "string"),
    ],
)
def test_type_of_another_language_has_a_hint(name: str, meant: str) -> None:
    hint = f"did you mean {meant!r}?"
    assert _told(node("a"), inputs={"x": {"type": name}}) == [
        ("/inputs/x/type", None, f"inputs.x.type: {name!r} is not a JSON type", hint)
    ]
    inner = {"type": "array", "items": {"type": name}}
    assert _told(node("a"), inputs={"x": inner}) == [
        ("/inputs/x/items/type", None, f"inputs.x.items.type: {name!r} is not a JSON type", hint)
    ]


def test_reserved_id_is_explained_and_references_to_it_are_no_problem() -> None:
    [(place, node_id, message, _)] = _told(node("item"), node("b", arguments={"x": "{{item.result}}"}))
    assert (place, node_id) == ("/nodes/0/id", "item")
    assert message == (
        "id: 'item' is reserved for the item of a for_each; an id is any text but index, inputs, item, secret, ~budget"
    )


def test_beginning_of_the_name_of_a_tool_is_near() -> None:
    assert _told(node("a", tool="typ"))[0][3] == "did you mean 'typed'?"


def test_value_that_an_enumeration_does_not_have_has_a_hint() -> None:
    [(place, _, message, hint)] = _told(node("a", tool="typed", arguments={"name": "xx", "mode": "fats"}))
    assert (place, message, hint) == (
        "/nodes/0/arguments/mode",
        'typed: "fats" is not one of fast, slow',
        "did you mean 'fast'?",
    )


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        ({"plan": 1, "nodes": {"a": {}}}, [("/nodes", "'nodes' must be a list, not an object")]),
        (
            {"plan": 1, "steps": []},
            [
                (
                    "/steps",
                    "unknown field 'steps'; allowed are title, plan, metadata, inputs, on_failure, deadline, nodes, "
                    "output",
                ),
                ("", "'nodes' is missing"),
            ],
        ),
    ],
)
def test_plan_without_a_list_of_nodes_says_what_to_write(plan: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    problems = problems_of(plan)
    assert [(each.pointer, each.message) for each in problems] == expected
    assert problems[-1].hint == "write a list of nodes, such as nodes: [{id: a, tool: NAME}]"


def test_former_name_of_a_tool_has_its_new_name() -> None:
    tools = {"fresh": ToolDeclaration("fresh", aliases=("stale",))}
    problems = problems_of(plan_of(node("a", tool="stale")), tools=tools)
    assert [each.hint for each in problems] == ["the tool was renamed: write tool: fresh"]


def test_fields_are_listed_in_the_order_of_the_reference() -> None:
    [(_, _, message, hint)] = _told(node("a", zzzzzz=1))
    listed = "id, title, tool, agent, human, plan, arguments, objective and 15 more"
    assert (message, hint) == (f"unknown field 'zzzzzz'; allowed are {listed}", None)
