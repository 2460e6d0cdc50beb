"""Problems of a plan: all problems are reported at once, each with its code, pointer, node and hint."""

import gc
import time
from typing import Any

import pytest

from dagwright.core.errors import Problem
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.core.validation.validation import MAX_SUB_PLAN_DEPTH
from tests.support.plan_building import TOOLS, check, compiled_plan, node, plan_of, problems_of


def problems_in(*nodes: Any, **fields: Any) -> list[tuple[str, str, str | None, str, str | None]]:
    actual = problems_of(plan_of(*nodes, **fields))
    return [(problem.code, problem.pointer, problem.node_id, problem.message, problem.hint) for problem in actual]


def test_duplicate_ids_self_dependencies_and_unknown_dependencies_are_reported() -> None:
    message = "duplicate node id 'a' (nodes 0 and 2)"
    assert problems_in(node("a"), node("b"), node("a")) == [("duplicate_id", "/nodes/2/id", "a", message, None)]
    assert [problem[0] for problem in problems_in(node("caf\u00e9"), node("cafe\u0301"))] == ["duplicate_id"]
    assert problems_in(node("a", "a"), node("b", arguments={"x": "{{b.result}}"})) == [
        ("self_dependency", "/nodes/0", "a", "'a' depends on itself", None),
        ("self_dependency", "/nodes/1", "b", "'b' depends on itself", None),
    ]
    ((code, _, _, message, hint),) = problems_in(node("fetch_mail", "fetch_mails"), node("a"))
    assert (code, hint) == ("unknown_dependency", None)
    assert message == "'fetch_mail' depends on unknown node 'fetch_mails'"
    ((_, _, _, _, hint),) = problems_in(node("fetch_mail", "fetch_mails"), node("fetch_mail_s"))
    assert hint == "did you mean 'fetch_mail_s'?"


def test_references_to_unknown_nodes_are_reported_with_a_hint_and_location() -> None:
    message = "Invalid reference: {{fetch_mial.result.data}}: there is no node 'fetch_mial'"
    assert problems_in(node("fetch_mail"), node("b", arguments={"x": [{"y/z": "see {{fetch_mial.result.data}}"}]})) == [
        ("invalid_reference", "/nodes/1/arguments/x/0/y~1z", "b", message, "did you mean 'fetch_mail'?")
    ]
    problems = problems_in(node("a", arguments={"x": "{{b.result}} {{c.result}}"}), output="{{d.status}} {{e.error}}")
    assert [(location, message.partition(";")[0]) for _, location, _, message, _ in problems] == [
        ("/nodes/0/arguments/x", "Invalid reference: {{b.result}}: there is no node 'b'"),
        ("/nodes/0/arguments/x", "Invalid reference: {{c.result}}: there is no node 'c'"),
        ("/output", "Invalid reference: {{d.status}}: there is no node 'd'"),
        ("/output", "Invalid reference: {{e.error}}: there is no node 'e'"),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{{fetch}}", "'fetch' is a node and not a value (write {{fetch.result}}"),
        ("{{fetch.result.x", "it is not closed by }}"),
        ("{{ }}", "not a reference (write \\{{ where two braces are meant as text"),
        ("{{fetch.result[}}", "'[' is not a path"),
        ("{{item.x}}", "only allowed in a node with for_each"),
        ("{{index}}", "only allowed in a node with for_each"),
    ],
)
def test_invalid_references_are_rejected(text: str, message: str) -> None:
    (problem,) = problems_of(plan_of(node("fetch"), node("b", arguments={"x": text})))
    assert (problem.code, problem.pointer) == ("invalid_reference", "/nodes/1/arguments/x")
    assert problem.text.startswith(f"Invalid reference: {text}: {message}")


def test_cycle_is_reported_once_with_all_its_nodes() -> None:
    nodes = (node("c", "b"), node("a", "c"), node("b", arguments={"x": "{{a.result}}"}), node("d", "a"))
    assert problems_in(*nodes) == [
        ("cycle", "/nodes/0", "c", "CircularDependencyError: c → b → a → c", "remove one of these dependencies")
    ]
    ring = [node(f"n{number}", f"n{(number + 1) % 260}") for number in range(260)]
    ((code, _, first_id, message, _),) = problems_in(*ring)
    assert (code, first_id) == ("cycle", "n0")
    assert message == "CircularDependencyError: " + " → ".join([*(f"n{number}" for number in range(260)), "n0"])


def test_edges_come_from_references_and_dependencies_in_any_order() -> None:
    checked_plan = check(plan_of(node("z", arguments={"x": "{{a.result}}"}), node("a"), node("b", "z", "a")))
    assert checked_plan.levels == [["a"], ["z"], ["b"]]
    assert checked_plan.critical_path == ["a", "z", "b"]
    assert (checked_plan.edge_count, list(checked_plan.dependencies)) == (3, [[1], [], [0, 1]])
    reads = {"x": "{{a.result}} {{a.status}}", "y": "{{a.error}}"}
    checked_plan = check(plan_of(node("a"), node("b", "a", "a", arguments=reads, when="a.result == 1")))
    assert checked_plan.edge_count == 1


@pytest.mark.parametrize(
    ("fields", "location", "message"),
    [
        ({"tool": None}, "", "a node has exactly one of tool, agent, human and plan; this node has none of them"),
        ({"agent": "w"}, "", "a node has exactly one of tool, agent, human and plan; this node has tool and agent"),
        ({"key": "{{a.result}}"}, "/key", "'key' needs 'for_each'"),
        ({"max_parallel": 2}, "/max_parallel", "'max_parallel' needs 'for_each'"),
        ({"objective": "do"}, "/objective", "'objective' needs 'agent'"),
        ({"tool": ""}, "/tool", "tool must be a name of 1 to 200 bytes"),
        ({"tool": "é" * 101}, "/tool", "tool must be a name of 1 to 200 bytes"),
        ({"join": {"at_least": 2}}, "/join", "join: at_least 2 of 1 dependencies can never be done"),
        ({"arguments": [1]}, "/arguments", "arguments: expected an object, not [1]"),
        ({"priority": 9}, "/priority", "priority: expected at most 5, not 9"),
        ({"priority": "1"}, "/priority", "priority: expected a whole number, not '1'"),
        (
            {"timeout": "soon"},
            "/timeout",
            "timeout: 'soon' is not a duration; write a number and a unit, such as 500ms",
        ),
        ({"timeout": "0s"}, "/timeout", "timeout: '0s' is out of range; a duration is over 0 and at most 3650d"),
        ({"retry": {"max_attempts": 0}}, "/retry/max_attempts", "retry.max_attempts: expected at least 1, not 0"),
        ({"when": "a.result >"}, "/when", "when: column 11: the condition ends too early"),
        ({"when": "item > 1"}, "/when", "when: item is only allowed in a node with for_each"),
        ({"for_each": "all of {{a.result}}"}, "/for_each", "for_each must be one reference to a list, or a list"),
        ({"for_each": "x"}, "/for_each", "for_each must be one reference to a list, or a list"),
    ],
)
def test_invalid_field_is_reported_with_its_location(fields: dict[str, Any], location: str, message: str) -> None:
    raw = node("b", "a") | fields
    problems = [problem for problem in problems_in(node("a"), raw) if problem[0] == "invalid_field"]
    assert [(problem[1], problem[2]) for problem in problems] == [(f"/nodes/1{location}", "b")]
    assert problems[0][3].startswith(message)


def test_problems_of_inputs_are_reported_with_the_problems_of_nodes() -> None:
    inputs = {
        **{"odd name": {"type": "string"}, "u": 5, "kinds": {"type": 7}, "asked": {"prompt": ["?"]}},
        **{"q": {"type": "strng"}, "n": {"type": "integer", "default": "many"}},
    }
    problems = problems_in(node("a", "b"), inputs=inputs)
    assert [(location, message) for _, location, _, message, _ in problems] == [
        ("/inputs/odd name", "inputs.odd name: the name of an input has letters, digits and _ only"),
        ("/inputs/u", "inputs.u: expected an object, such as {type: string, prompt: …}, not 5"),
        ("/inputs/kinds/type", "inputs.kinds.type: expected the name of a JSON type, or a list of them, not 7"),
        ("/inputs/asked/prompt", "inputs.asked.prompt: expected a text, not ['?']"),
        ("/nodes/0/depends_on/0", "'a' depends on unknown node 'b'"),
        ("/inputs/q/type", "inputs.q.type: 'strng' is not a JSON type"),
        ("/inputs/n/default", 'the default of the input \'n\', "many": "many" is not of type "integer"'),
    ]


@pytest.mark.parametrize("invalid_id", ["item", 5, "", "a\ud800"])
def test_invalid_id_hides_no_other_problem(invalid_id: Any) -> None:
    """The unknown tool and the type of the input are reported. A dependency on the invalid ID is not reported."""
    nodes = [{"id": invalid_id, "tool": "nobody"}, node("b", *([invalid_id] if isinstance(invalid_id, str) else []))]
    problems = problems_in(*nodes, inputs={"q": {"type": "strng"}})
    assert [(code, location) for code, location, *_ in problems] == [
        ("invalid_field", "/nodes/0/id"),
        ("unknown_tool", "/nodes/0/tool"),
        ("invalid_field", "/inputs/q/type"),
    ]


CACHE_TOOLS = {
    **TOOLS,
    "pure": ToolDeclaration("pure", Effects.PURE),
    "keyed": ToolDeclaration("keyed", Effects.IDEMPOTENT),
    "writing": ToolDeclaration("writing", Effects.WRITE),
    "foreign": ToolDeclaration("foreign", Effects.READ, is_foreign=True),
}
_NOT_CACHEABLE = (
    "results of '{}' are never reused, because its effects are '{}': each call has to make its change; "
    "only 'pure' and 'read' tools can have a cache"
)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tool": "writing"}, _NOT_CACHEABLE.format("writing", "write")),
        ({"agent": "keyed", "objective": "x"}, _NOT_CACHEABLE.format("keyed", "idempotent")),
        ({"tool": "foreign"}, "'foreign' runs in a worker of another program, whose results are not cached"),
        ({"human": {}}, "'cache' needs a tool whose results can be reused"),
        ({"plan": plan_of(node("x"))}, "'cache' needs a tool whose results can be reused"),
        ({"tool": "any"}, None),
        ({"tool": "pure"}, None),
    ],
)
def test_cache_is_rejected_for_results_that_cannot_be_reused(fields: dict[str, Any], message: str | None) -> None:
    actual = list(problems_of(plan_of(node("a", cache={"ttl": "500ms"}, **fields)), tools=CACHE_TOOLS))
    problem = Problem("invalid_field", message or "", "/nodes/0/cache", "a", "omit 'cache'")
    assert actual == ([] if message is None else [problem])
    assert problems_of(plan_of(node("a", cache="off", **fields)), tools=CACHE_TOOLS) == ()


def test_unknown_key_is_reported_with_the_nearest_known_key() -> None:
    for name in ("needs", "after"):
        ((_, _, _, message, hint),) = problems_in(node("a", **{name: ["b"]}))
        assert hint == "did you mean 'depends_on'?"
        assert message.startswith(f"unknown field {name!r}; allowed are depends_on, ")
        assert message.endswith(" and 15 more")
    assert [each[:3] + each[4:] for each in problems_in(node("a", dependson=["b"]), tittle="x")] == [
        ("invalid_field", "/tittle", None, "did you mean 'title'?"),
        ("invalid_field", "/nodes/0/dependson", "a", "did you mean 'depends_on'?"),
    ]


@pytest.mark.parametrize(
    "node_id", ["item", "index", "inputs", "secret", "~budget", "", " ", "x" * 201, "é" * 101, "\ud800", 5]
)
def test_id_that_cannot_be_used_is_rejected(node_id: Any) -> None:
    ((code, pointer, *_),) = problems_in({"id": node_id, "tool": "any"})
    assert (code, pointer) == ("invalid_field", "/nodes/0/id")


def test_node_without_an_id_is_rejected_and_references_to_a_node_with_other_problems_are_valid() -> None:
    assert [(code, pointer, message) for code, pointer, _, message, _ in problems_in("x", {"tool": "any"})] == [
        ("invalid_field", "/nodes/0", "node 0 must be an object"),
        ("invalid_field", "/nodes/1", "'id' is missing"),
    ]
    problems = problems_in(node("a", priority=9, depends_on=["gone"]), node("b", arguments={"x": "{{a.result}}"}))
    expected = [("invalid_field", "/nodes/0/priority"), ("unknown_dependency", "/nodes/0/depends_on/0")]
    assert [(problem[0], problem[1]) for problem in problems] == expected


_TOOLS_HINT = "name its module: --tools on the command line, tools=[...] in Python"


def test_unknown_compensating_tool_is_rejected_and_a_known_compensating_tool_is_compiled() -> None:
    book_tool = ToolDeclaration("book", Effects.IDEMPOTENT, undo="free")
    raw = plan_of(node("a", tool="book"))
    message = "'book' is compensated by an unknown tool 'free'"
    (problem,) = problems_of(raw, tools={"book": book_tool})
    assert problem == Problem("unknown_tool", message, "/nodes/0/tool", "a", _TOOLS_HINT)
    assert check(raw, tools={"book": book_tool}, allow_unknown_tools=True).edge_count == 0
    undo_tool = ToolDeclaration("free", Effects.IDEMPOTENT, max_attempts=9)
    plan = compiled_plan(raw, tools={"book": book_tool, "free": undo_tool, "other": undo_tool})
    assert (list(plan.tools), plan.tools["book"].undo, plan.tools["free"].max_attempts) == (["book", "free"], "free", 9)


@pytest.mark.parametrize(
    ("tool", "hint"),
    [
        ("typd", "did you mean 'typed'?"),
        ("typ", "did you mean 'typed'?"),
        ("github.create_issue", f"{_TOOLS_HINT}, or the JSON file with the MCP server 'github'"),
    ],
)
def test_unknown_tool_is_reported_with_a_hint_and_accepted_if_allowed(tool: str, hint: str) -> None:
    assert [problem[:2] + problem[4:] for problem in problems_in(node("a", tool=tool))] == [
        ("unknown_tool", "/nodes/0/tool", hint)
    ]
    assert check(plan_of(node("a", tool=tool)), allow_unknown_tools=True).edge_count == 0


@pytest.mark.parametrize(
    ("arguments", "location", "message", "hint"),
    [
        ({}, "", '"name" is a required property', None),
        ({"name": 5}, "/name", '5 is not of type "string"', None),
        ({"name": "Jo", "count": 0}, "/count", "0 is less than the minimum of 1", None),
        ({"name": "Jo", "tags": ["x", 1]}, "/tags/1", '1 is not of type "string"', None),
        ({"name": "Jo", "cuont": 1}, "/cuont", "unknown argument 'cuont'", "did you mean 'count'?"),
        ({"name": "Jo", "mode": "fats"}, "/mode", '"fats" is not one of fast, slow', "did you mean 'fast'?"),
        ({"name": "Jo", "cbu-id": 1}, "/cbu-id", '1 is not of type "string"', None),
        ({"name": "{{f.result}}", "count": "x"}, "/count", '"x" is not of type "integer"', None),
        ({"name": "Jo", "tags": ["{{f.result}}", 1]}, "/tags/1", '1 is not of type "string"', None),
        # The value of a reference is not checked.
        ({"name": "{{f.result}}"}, "", None, None),
        ({"name": "x {{f.result}}", "count": "{{f.result}}", "mode": "{{f.result}}"}, "", None, None),
        ({"name": "Jo", "tags": "{{f.result}}"}, "", None, None),
        ({"name": "Jo", "tags": ["{{f.result}}", "{{f.result}}"]}, "", None, None),
        ({"name": "Jo", "cbu-id": "x"}, "", None, None),
    ],
)
def test_invalid_argument_is_reported_with_its_location(
    arguments: dict[str, Any], location: str, message: str | None, hint: str | None
) -> None:
    problem = ("invalid_arguments", f"/nodes/1/arguments{location}", "a", f"typed: {message}", hint)
    actual = problems_in(node("f"), node("a", tool="typed", arguments=arguments))
    assert actual == ([] if message is None else [problem])


@pytest.mark.parametrize("schema", [{"type": "objekt"}, {"$ref": "http://127.0.0.1:9/schema.json"}])
def test_invalid_schema_of_a_tool_is_reported_once_without_network_access(schema: dict[str, Any]) -> None:
    tools = {"t": ToolDeclaration("t", input_schema=schema)}
    (problem,) = problems_of(plan_of(node("a", tool="t"), node("b", tool="t")), tools=tools)
    assert (problem.code, problem.pointer) == ("unknown_tool", "/nodes/0/tool")


def test_secret_is_allowed_only_in_arguments_of_tools_that_accept_secrets() -> None:
    tools = {**TOOLS, "java": ToolDeclaration("java", is_foreign=True)}
    tools |= {"file": ToolDeclaration("file", secrets=()), "sum": ToolDeclaration("sum", Effects.PURE)}
    raw = plan_of(
        node("a", arguments={"key": "Bearer {{secret.API_KEY}}"}),
        node("b", for_each="{{secret.LIST}}"),
        node("c", tool="java", arguments={"key": "{{secret.API_KEY}}"}),
        node("d", tool="file", arguments={"key": "{{secret.API_KEY}}"}),
        node("e", tool="sum", arguments={"key": "{{secret.API_KEY}}"}),
        output="{{secret.API_KEY}}",
    )
    assert [(problem.code, problem.pointer) for problem in problems_of(raw, tools=tools)] == [
        ("invalid_reference", "/nodes/1/for_each"),
        ("invalid_arguments", "/nodes/2/arguments"),
        ("invalid_arguments", "/nodes/3/arguments"),
        ("invalid_arguments", "/nodes/4/arguments"),
        ("invalid_reference", "/output"),
    ]


def test_problems_of_sub_plans_are_reported_and_the_depth_of_sub_plans_is_limited() -> None:
    inner_plan = plan_of(node("x", "y"), node("y", arguments={"n": "{{PLACEHOLDER_n}}"}), node("z", "gone"))
    assert problems_in(node("a"), node("s", plan=inner_plan, arguments={"m": "{{a.result}}"})) == [
        ("unknown_dependency", "/nodes/1/plan/nodes/2/depends_on/0", "z", "'z' depends on unknown node 'gone'", None),
        ("missing_input", "/nodes/1/arguments", "s", "the sub-plan needs the input 'n'", None),
        ("invalid_arguments", "/nodes/1/arguments/m", "s", "the sub-plan has no input 'm'", None),
    ]
    net_plan = plan_of(node("y", arguments={"n": "{{PLACEHOLDER_net}}"}))
    assert problems_in(node("s", plan=net_plan, arguments={"nett": 3})) == [
        ("invalid_arguments", "/nodes/0/arguments/nett", "s", "the sub-plan has no input 'nett'", "did you mean 'net'?")
    ]
    [problem] = problems_in(node("s", plan="other.yaml"))
    assert problem[:2] == ("unreadable", "/nodes/0/plan")
    assert "write the sub-plan itself into the node (plan: {nodes: […]})" in str(problem)
    raw = plan_of(node("n"))
    for _ in range(MAX_SUB_PLAN_DEPTH):
        raw = plan_of(node("n", plan=raw))
    assert problems_of(raw) == ()
    assert [problem.code for problem in problems_of(plan_of(node("n", plan=raw)))] == ["too_large"]


def big_plan(count: int, *, has_problems: bool = False) -> dict[str, Any]:
    """Return a plan with references and typed arguments; with `has_problems`, each node but the first has a problem."""

    def typed_node(number: int) -> dict[str, Any]:
        name = f"{{{{n{number - 1}.result}}}} + {{{{n{number // 2}.result}}}}"
        dependency = f"m{number}" if has_problems else f"n{max(0, number - 3)}"
        return node(f"n{number}", dependency, tool="typed", arguments={"name": name, "count": number})

    return plan_of(node("n0", tool="typed", arguments={"name": "first"}), *map(typed_node, range(1, count)))


def cpu_seconds_to_check(raw: dict[str, Any]) -> float:
    """Return the CPU time of a check without the garbage collector, which would visit objects of earlier tests."""
    gc.collect()
    gc.disable()
    try:
        start_s = time.process_time()
        problems_of(raw)
        return time.process_time() - start_s
    finally:
        gc.enable()


@pytest.mark.alone
@pytest.mark.parametrize("has_problems", [False, True])
def test_check_takes_linear_time(has_problems: bool) -> None:
    """A check in quadratic time would take 100 times as long for ten times the nodes.

    A busy machine can disturb some of the ten measurements, so one measurement within the limit is sufficient.
    """
    small_plan, large_plan = big_plan(600, has_problems=has_problems), big_plan(6_000, has_problems=has_problems)
    assert any(cpu_seconds_to_check(large_plan) < 30 * cpu_seconds_to_check(small_plan) for _ in range(10))


def test_references_to_nodes_may_use_any_unicode_normal_form() -> None:
    composed_id, decomposed_id = "\u00e9", "e\u0301"
    checked_plan = check(
        plan_of(
            node(decomposed_id),
            node("b", decomposed_id),
            node("c", composed_id),
            node("d", when=f'nodes["{decomposed_id}"].result == 1'),
            node("e", arguments={"x": "{{" + decomposed_id + ".result}}"}),
            node("f", decomposed_id, composed_id, join={"at_least": 1}),
        )
    )
    assert (checked_plan.nodes[0].id, checked_plan.dependencies) == (composed_id, [[], [0], [0], [0], [0], [0]])


def test_agent_of_a_node_with_a_slash_in_its_id_differs_from_the_agent_of_a_sub_plan() -> None:
    def agent_node(node_id: str, prompt: str) -> dict[str, Any]:
        return {"id": node_id, "agent": {"prompt": prompt}, "objective": "Do it."}

    sub_plan = {"id": "a", "plan": {"nodes": [agent_node("b", "You are the child.")]}}
    checked_plan = check({"plan": 1, "nodes": [agent_node("a/b", "You are the parent."), sub_plan]})
    [parent], [child] = checked_plan.nodes[:1], checked_plan.sub_plans[1].nodes
    cards = [checked_plan.tools[f"agent.{each.agent_name}"].agent for each in (parent, child)]
    assert [(card.name, card.prompt) for card in cards if card is not None] == [
        ("a/b (inline)", "You are the parent."),
        ("a/b#2 (inline)", "You are the child."),
    ]
