"""The dialects of published formats: `llmcompiler`, `rewoo`, `hugginggpt`, `taskbench` and `nestful`."""

import json
from pathlib import Path
from typing import Any

import pytest

from dagwright.core.errors import PlanInvalid
from dagwright.core.model.tools import ToolDeclaration
from dagwright.dialects import to_document
from dagwright.dialects.reading import inline_files
from dagwright.plans.preparation import check_plan, check_written_plan
from tests.conformance.kit import check, codes_and_pointers_of, problems_of
from tests.support.plan_building import plan_of


def declare_tool(name: str, **types: str) -> ToolDeclaration:
    properties = {key: {"type": kind} for key, kind in types.items()}
    return ToolDeclaration(name, input_schema={"type": "object", "properties": properties})


TOOLS = {
    "search": declare_tool("search", query="string"),
    "math": declare_tool("math", problem="string", context="array", unit="string"),
}


def node(node_id: str, tool: str, arguments: Any, **fields: Any) -> dict[str, Any]:
    return {"id": node_id, "tool": tool, "arguments": arguments, **fields}


def arguments_of(raw: Any, **options: Any) -> list[Any]:
    return [node["arguments"] for node in to_document(raw, **options).plan["nodes"]]


def messages_of(raw: Any) -> list[tuple[str, str]]:
    return [(problem.code, problem.message) for problem in problems_of(raw)]


def test_llmcompiler_calls_become_nodes_with_declared_parameter_names() -> None:
    text = (
        "Thought: find the height\n"
        '1. search("Mount Everest")\n'
        '2. math(\'half of it in m?\', ["$1", True, None], unit="m") # half\n'
        "3. math(abs(${2} - $1))\n"
        "Thought: I can answer\n"
        "4. join()<END_OF_PLAN>\n"
    )
    checked_plan = check_plan(text, TOOLS)
    assert [(node.id, node.title, node.tool, node.arguments) for node in checked_plan.nodes] == [
        ("1", "find the height", "search", {"query": "Mount Everest"}),
        ("2", None, "math", {"problem": "half of it in m?", "context": ["{{1.result}}", True, None], "unit": "m"}),
        ("3", None, "math", {"problem": "abs({{2.result}} - {{1.result}})"}),
    ]
    assert (checked_plan.dialect, checked_plan.levels, checked_plan.notes) == ("llmcompiler", [["1"], ["2"], ["3"]], [])


def test_llmcompiler_arguments_keep_their_types_and_texts() -> None:
    assert arguments_of("1. f(1, arg1=2)\n2. g($1, ${1}, [$1])\n3. join()") == [
        {"query": 1, "arg1": 2},
        {"arg1": "{{1.result}}", "arg2": "{{1.result}}", "arg3": ["{{1.result}}"]},
    ]
    assert arguments_of('1. f("a\nb",\n  [1,\n 2])\nThought: x\n2. join()') == [{"arg1": "a\nb", "arg2": [1, 2]}]
    text = '1. f("for $1,000 or $2.50 or $3k, {{x}}")\n2. join()'
    expected = [{"query": "for $1,000 or $2.50 or $3k, \\{{x}}"}]
    assert arguments_of(text) == [node.arguments for node in check(text).nodes] == expected


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ('1. f("$3")\n2. join()', "invalid_reference", "Invalid reference: there is no task 3 for $3"),
        ('1. f("a"\n2. join()', "invalid_syntax", "f: its ')' is missing"),
        ('1. f("a" "b")\n2. join()', "invalid_syntax", "f: ',' or ')' is missing before the text '\"b\")\\n'"),
        ("1. f(1) then 2\n2. join()", "invalid_syntax", "f: unexpected text 'then 2' after ')'"),
        (
            "1. f(a=1, 2)\n2. join()",
            "invalid_syntax",
            "f: an argument without a name follows an argument with a name",
        ),
    ],
)
def test_errors_in_llmcompiler_text_are_reported_with_task_and_line(text: str, code: str, message: str) -> None:
    assert messages_of(text) == [(code, f"task 1 (line 1): {message}")]


def test_join_must_be_the_last_task_but_not_the_only_task() -> None:
    message = "task 3 (line 3) is after join(), which ends the plan"
    assert messages_of("1. f(1)\n2. join()\n3. g(2)") == [("invalid_field", message)]
    message = "there is no task before join(): there is nothing to run"
    assert messages_of("1. join()") == [("empty_plan", message)]


def test_excess_arguments_are_rejected_and_a_missing_join_has_a_note() -> None:
    document = to_document('1. search("a", "b")', tools=TOOLS)
    assert [(problem.code, problem.message) for problem in document.problems] == [
        ("invalid_arguments", "task 1 (line 1): search takes 1 argument (query), not 2")
    ]
    assert [note.code for note in document.notes] == ["no_join"]


def test_rewoo_steps_become_nodes_whose_titles_are_the_plan_lines() -> None:
    text = (
        "Plan: Find the winner.\n#E1 = Google[2024 open [men]]\n\n"
        "Plan: Ask for #E1. #E2 = LLM[Where is #E1 from, not #E12x?]\n#E3 = LLM[#E2]\n"
    )
    document = to_document(text)
    assert document.dialect == "rewoo"
    assert document.plan["nodes"] == [
        node("E1", "Google", {"query": "2024 open [men]"}, title="Find the winner."),
        node("E2", "LLM", {"query": "Where is {{E1.result}} from, not #E12x?"}, title="Ask for #E1."),
        node("E3", "LLM", {"query": "{{E2.result}}"}),
    ]


def test_problems_in_rewoo_text_are_reported_with_step_and_line() -> None:
    assert messages_of("#E1 = T[a\n#E2 = T[#E1 #E7]\n") == [
        ("invalid_syntax", "#E1 (line 1): T: its ']' is missing"),
        ("invalid_reference", "#E2 (line 2): Invalid reference: there is no step #E7"),
    ]


def test_hugginggpt_tasks_reference_results_of_other_tasks() -> None:
    raw: Any = [
        {"task": "image-to-text", "id": 0, "dep": [-1], "args": {"image": "a.jpg"}},
        {"task": "text-to-speech", "id": 1, "dep": [0], "args": {"text": "<GENERATED>-0", "voice": ["<GENERATED> x"]}},
        {"task": "merge", "id": 2, "dep": [1], "args": {"text": "<GENERATED>-0 and <GENERATED>-1"}},
    ]
    document = to_document(raw)
    assert document.plan["nodes"] == [
        node("0", "image-to-text", {"image": "a.jpg"}, depends_on=[]),
        node("1", "text-to-speech", {"text": "{{0.result}}", "voice": ["{{0.result}} x"]}, depends_on=["0"]),
        node("2", "merge", {"text": "{{0.result}} and {{1.result}}"}, depends_on=["1"]),
    ]
    assert [(note.code, note.node_id) for note in document.notes] == [("added_edge", "2")]
    assert check(raw).levels == [["0"], ["1"], ["2"]]


def test_ambiguous_generated_reference_is_rejected() -> None:
    raw: Any = [
        {"task": "a", "id": 0, "dep": [-1], "args": {}},
        {"task": "b", "id": 1, "dep": [-1], "args": {}},
        {"task": "c", "id": 2, "dep": [0, 1], "args": {"text": "<GENERATED>"}},
        {"task": "d", "id": 3, "dep": [-1, 0], "args": {"text": "<GENERATED>-9"}},
    ]
    assert codes_and_pointers_of(raw) == [
        ("invalid_reference", "/2/args/text"),
        ("invalid_field", "/3/dep/0"),
        ("invalid_reference", "/3/args/text"),
    ]


def test_taskbench_arguments_are_positional_or_named() -> None:
    search_node: Any = {"task": "search", "arguments": ["q"]}
    math_node: Any = {"task": "math", "arguments": ["twice <node-0>", ["<node-0>"]]}
    positional_document: Any = {"task_steps": ["Find it", "Say it"], "task_nodes": [search_node, math_node]}
    arguments = {"problem": "twice {{node-0.result}}", "context": ["{{node-0.result}}"]}
    assert to_document(positional_document, tools=TOOLS).plan["nodes"] == [
        node("node-0", "search", {"query": "q"}, title="Find it"),
        node("node-1", "math", arguments, title="Say it"),
    ]
    search_node = {"task": "search", "arguments": [{"name": "query", "value": "q"}]}
    math_node = {"task": "math", "arguments": [{"name": "problem", "value": "search"}, {"name": "unit", "value": 7}]}
    links = [{"source": "search", "target": "math"}]
    named_document: Any = {"task_nodes": [search_node, math_node], "task_links": links}
    assert to_document(named_document).plan["nodes"][1] == node(
        "node-1", "math", {"problem": "{{node-0.result}}", "unit": 7}, depends_on=["node-0"]
    )


def test_ambiguous_taskbench_link_or_value_is_rejected() -> None:
    ambiguous_node = {"task": "a", "arguments": []}
    raw: Any = {
        "task_nodes": [ambiguous_node, ambiguous_node, {"task": "b", "arguments": [{"name": "x", "value": "a"}]}],
        "task_links": [{"source": "a", "target": "b"}, {"source": "c", "target": "b"}, 7],
    }
    assert codes_and_pointers_of(raw) == [
        ("invalid_field", "/task_links/2"),
        ("invalid_reference", "/task_links/0/source"),
        ("invalid_reference", "/task_links/1/source"),
        ("invalid_reference", "/task_nodes/2/arguments/0/value"),
    ]


def test_nestful_references_use_labels() -> None:
    booking = {"car": "$var1.cars[0].id$", "rate": "5 * $var1.Exchange Rate$", "price": "$5"}
    raw: Any = [
        {"name": "Cars.Find", "arguments": {"city": "Rome"}, "label": "var1"},
        {"name": "Cars.Book", "arguments": booking, "label": "$var2"},
        {"name": "var_result", "arguments": {"found": "$var1$", "booked": "$var2.ok$"}},
    ]
    document = to_document(raw)
    rate = '5 * {{var1.result["Exchange Rate"]}}'
    assert document.plan == {
        "plan": 1,
        "nodes": [
            node("var1", "Cars.Find", {"city": "Rome"}),
            node("var2", "Cars.Book", {"car": "{{var1.result.cars[0].id}}", "rate": rate, "price": "$5"}),
        ],
        "output": {"found": "{{var1.result}}", "booked": "{{var2.result.ok}}"},
    }
    assert document.written_pointer("/output/booked") == "/2/arguments/booked"
    assert check(raw).levels == [["var1"], ["var2"]]


def test_unknown_nestful_label_is_reported_with_the_most_similar_label() -> None:
    raw: Any = [
        {"name": "a", "arguments": {}, "label": "var1"},
        {"name": "b", "arguments": {"x": ["$vra1.y$"]}, "label": 7},
        {"name": "var_result", "arguments": {"x": "$var9$"}},
    ]
    actual = [(problem.code, problem.pointer, problem.hint) for problem in problems_of(raw)]
    assert actual == [
        ("invalid_field", "/1/label", None),
        ("invalid_reference", "/1/arguments/x/0", "did you mean 'var1'?"),
        ("invalid_reference", "/2/arguments/x", "did you mean 'var1'?"),
    ]


@pytest.mark.parametrize(
    "raw",
    [
        '1. f("C:\\\\$1")\n2. join()',
        "#E1 = T[a]\n#E2 = T[C:\\#E1]",
        [{"task": "a", "id": 0, "args": {}}, {"task": "b", "id": 1, "dep": [0], "args": {"x": "\\<GENERATED>-0"}}],
        {"task_nodes": [{"task": "a"}, {"task": "b", "arguments": ["\\<node-0>"]}]},
        [{"name": "a", "label": "v"}, {"name": "b", "arguments": {"x": "\\$v$"}}],
    ],
    ids=["llmcompiler", "rewoo", "hugginggpt", "taskbench", "nestful"],
)
def test_backslash_right_before_a_reference_is_rejected(raw: Any) -> None:
    assert [code for code, _ in codes_and_pointers_of(raw)][:1] == ["invalid_reference"]


def test_sub_plan_in_a_text_file_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "inner.txt").write_text("1. f(2)\n2. join()\n", encoding="utf-8")
    with pytest.raises(PlanInvalid) as caught:
        inline_files({"plan": 1, "nodes": [{"id": "a", "plan": "inner.txt"}]}, base=tmp_path)
    [problem] = caught.value.problems
    assert (problem.code, problem.pointer) == ("invalid_field", "/nodes/0/plan")


_NODE, _TASK = {"id": "a", "tool": "echo"}, {"task": "echo", "id": 0, "dep": [-1], "args": {}}
_HUMAN = {"type": "INFORMATION", "prompt": "?", "schema": {"properties": {"{{PLACEHOLDER_x}}": {}}}}
_ARGUMENT = {"name": "x", "value": {"<node-0>": 1}}
_CALLS = [{"name": "echo", "label": "var_1"}, {"name": "echo", "arguments": {"x": {"$var_1.n$": 1}}, "label": "var_2"}]
_TASK_NODES = [{"task": "echo", "arguments": []}, {"task": "two", "arguments": [_ARGUMENT]}]
_TASK_LINKS = [{"source": "echo", "target": "two"}]
_INTENTS = [{"verb": "a.b", "params": {}}, {"verb": "a.b", "params": {"x": {"@result_1": 1}}}]
REFERENCES_IN_KEYS = [
    (plan_of(_NODE, node("b", "echo", {"x": [{"{{a.result.n}}": 1}]})), "/nodes/1/arguments/x/0/{{a.result.n}}"),
    (plan_of(node("a", "echo", {"{{PLACEHOLDER_x}}": 1})), "/nodes/0/arguments/{{PLACEHOLDER_x}}"),
    (plan_of(node("a", "echo", {"x": {"{{nowhere}}": 1}})), "/nodes/0/arguments/x/{{nowhere}}"),
    (
        plan_of({**_NODE, "for_each": [{"{{b.result}}": 1}]}, {"id": "b", "tool": "c"}),
        "/nodes/0/for_each/0/{{b.result}}",
    ),
    (plan_of(_NODE, output={"{{a.result}}": 1}), "/output/{{a.result}}"),
    (plan_of({"id": "a", "human": _HUMAN}), "/nodes/0/human/schema/properties/{{PLACEHOLDER_x}}"),
    ({"steps": [_NODE, node("b", "echo", {"x": {"{{a.result}}": 1}})]}, "/steps/1/arguments/x/{{a.result}}"),
    ([_TASK, {"task": "echo", "id": 1, "dep": [0], "args": {"x": {"<GENERATED>-0": 1}}}], "/1/args/x/<GENERATED>-0"),
    (_CALLS, "/1/arguments/x/$var_1.n$"),
    ({"task_nodes": _TASK_NODES, "task_links": _TASK_LINKS}, "/task_nodes/1/arguments/0/value/<node-0>"),
    ("1. echo(1)\n2. echo({'$1': 2})\n3. join()", ""),
    ({"intents": _INTENTS}, "/intents/1/params/x/@result_1"),
]


@pytest.mark.parametrize(("raw", "pointer"), REFERENCES_IN_KEYS, ids=range(len(REFERENCES_IN_KEYS)))
def test_reference_in_a_key_is_rejected_with_its_pointer(raw: Any, pointer: str) -> None:
    (problem,) = [problem for problem in problems_of(raw) if "holds a reference" in problem.message]
    assert (problem.code, problem.pointer) == ("invalid_reference", pointer)
    assert "Invalid reference: the key " in problem.message
    assert (problem.hint or "").startswith("references are allowed in values only")


@pytest.mark.parametrize("key", ["$1", "{{1}}", "<node-0>", "#E1", "@result_1"])
def test_reference_in_a_key_of_a_generated_plan_is_rejected(key: str) -> None:
    plan = {"nodes": [{"id": "s1", "tool": "echo"}, {"id": "s2", "tool": "echo", "arguments": {"x": {key: 1}}}]}
    with pytest.raises(PlanInvalid) as caught:
        check_written_plan(json.dumps({"plan": 1, **plan}), {}, allow_unknown_tools=True)
    assert {problem.pointer for problem in caught.value.problems} == {f"/nodes/1/arguments/x/{key}"}


@pytest.mark.parametrize(
    ("raw", "hint"),
    [
        ({"verb": "cbu.create", "params": {"name": "x"}}, 'wrap it: {"intents": [{"verb": …}]}'),
        ([{"verb": "cbu.create"}, {"verb": "cbu.link"}], 'wrap it: {"intents": […]}'),
    ],
)
def test_intents_without_the_intents_object_are_rejected_with_a_hint(raw: Any, hint: str) -> None:
    (problem,) = problems_of(raw)
    assert (problem.code, problem.hint) == ("invalid_field", hint)
