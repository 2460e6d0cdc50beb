"""References resolve like in a simple evaluator, for any node ID, and text from a result is never parsed."""

import json
import re
import unicodedata
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from dagwright.core.expressions.paths import format_path, parse_path
from dagwright.core.expressions.reference_parser import BadReferences, _parse_general, parse_template
from dagwright.core.expressions.references import (
    MAX_ID_BYTES,
    Index,
    Item,
    Placeholder,
    ResultOf,
    Scope,
    TemplatePart,
    resolve_bindings,
    resolve_template,
)
from dagwright.core.expressions.stored_values import Secret
from dagwright.core.model.compiled import CompiledNode, CompiledPlan, plan_from_json, plan_to_json
from dagwright.core.model.plan import RESERVED_IDS
from tests.property.plan_model import as_text
from tests.support.example_counts import example_count
from tests.support.plan_building import node, scheduler_of, start_ready_tasks

# Characters with a meaning in references, paths or JSON, and other characters.
ODD_CHARACTERS = "ab.{}[]\"'\\$ /()\n€é日\N{ROCKET}"
TEXTS = st.text(st.sampled_from(ODD_CHARACTERS + "resultx0"), max_size=12)
KEYS = st.text(st.sampled_from(ODD_CHARACTERS + "k1"), min_size=1, max_size=6)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**6) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)
TOKENS = ["{{", "}}", "{", "}", "\\", "a", "b", "a b", ".result", ".status", ".error", ".x", "[0]", '["k"]', " ", "."]


def is_id(text: str) -> bool:
    return bool(text.strip()) and text not in RESERVED_IDS and len(text.encode()) <= MAX_ID_BYTES


IDS = (
    st.text(st.sampled_from(ODD_CHARACTERS + ".result"), min_size=1, max_size=10)
    .map(lambda text: unicodedata.normalize("NFC", text).strip())
    .filter(is_id)
)


@st.composite
def values_with_paths(draw: st.DrawFn) -> tuple[Any, tuple[str | int, ...], Any]:
    """Return a JSON value, a path into it, and the value at the path."""
    value = draw(JSON_VALUES)
    path: list[str | int] = []
    inner = value
    while isinstance(inner, dict | list) and inner and draw(st.booleans()):
        step: Any = draw(st.sampled_from(sorted(inner) if isinstance(inner, dict) else range(len(inner))))
        path.append(step)
        inner = inner[step]
    return value, tuple(path), inner


def scope_of(results: dict[str, Any]) -> Scope:
    return Scope(lambda name, part: results[name] if part == "result" else "completed", inputs={})


def escape(text: str) -> str:
    return text.replace("{{", "\\{{")


@settings(max_examples=example_count(100), deadline=None)
@given(node_id=IDS, value_with_path=values_with_paths())
def test_single_reference_resolves_to_the_typed_value(
    node_id: str, value_with_path: tuple[Any, tuple[str | int, ...], Any]
) -> None:
    value, path, expected = value_with_path
    text = "{{" + f"{node_id}.result{format_path(path)}" + "}}"
    template = parse_template(text, {node_id})
    assert template == (ResultOf(node_id, "result", path),)
    resolved_value = resolve_template(template, scope=scope_of({node_id: value}))
    assert (type(resolved_value), resolved_value) == (type(expected), expected)


@settings(max_examples=example_count(100), deadline=None)
@given(pieces=st.lists(st.tuples(TEXTS, values_with_paths()), min_size=1, max_size=3), last_text=TEXTS)
def test_references_inside_text_resolve_like_in_a_simple_evaluator(
    pieces: list[tuple[str, tuple[Any, tuple[str | int, ...], Any]]], last_text: str
) -> None:
    text, expected, results = "", "", {}
    for number, (before, (value, path, inner)) in enumerate(pieces):
        # A brace or a backslash directly before a reference changes the meaning of the reference; other tests cover
        # this.
        prefix = "." + before.rstrip("{\\") + "."
        text += escape(prefix) + "{{" + f"node {number}.result{format_path(path)}" + "}}"
        expected += prefix + as_text(inner)
        results[f"node {number}"] = value
    template = parse_template(text + "." + escape(last_text), results)
    assert resolve_template(template, scope=scope_of(results)) == expected + "." + last_text


@settings(max_examples=example_count(120), deadline=None)
@example(tokens=["{{", "a", ".result", "}}", "{{", "b", ".result", "}}"], extra_ids=["a.result}}{{b"])
@example(tokens=["\\", "{{", "a", ".result", "}}", "{{", "b", ".result", "}}"], extra_ids=[])
@example(tokens=["{{", "a", ".result", "}}", " ", ".result"], extra_ids=["a.result}} "])
@given(tokens=st.lists(st.sampled_from(TOKENS), max_size=14), extra_ids=st.lists(st.text("ab.}{result ", max_size=12)))
def test_fast_parser_returns_the_same_as_the_general_parser(tokens: list[str], extra_ids: list[str]) -> None:
    text = "".join(tokens)
    ids = {"a", "b", "a b", *(name for name in extra_ids if is_id(name))}
    results: list[Any] = []
    for parse in (_parse_general, parse_template):
        try:
            results.append(parse(text, ids))
        except BadReferences as error:
            results.append((error.invalid_references, error.parts))
    assert results[0] == results[1]


@settings(max_examples=example_count(100), deadline=None)
@given(ids=st.lists(IDS | st.sampled_from(["a", "a.result", "a.result.b", "a.b"]), min_size=1, unique=True))
def test_reference_refers_to_the_longest_matching_id(ids: list[str]) -> None:
    for node_id in ids:
        text = "{{" + node_id + ".result}}"
        field = r"\.(result|status|error)([.\[\s}]|$)"
        candidates = [each for each in ids if re.match(re.escape(each) + field, text[2:])]
        (part,) = parse_template(text, set(ids))[:1]
        assert isinstance(part, ResultOf)
        assert part.node_id == max(candidates, key=len)


@settings(max_examples=example_count(100), deadline=None)
@given(text=TEXTS)
def test_text_without_a_reference_is_unchanged(text: str) -> None:
    assert parse_template(escape(text.replace("\\{", "")), {"a"}) == (text.replace("\\{", ""),)


@settings(max_examples=example_count(60), deadline=None)
@given(value=JSON_VALUES | st.sampled_from(["{{a.result}}", "\\{{ {{secret.KEY}} $1", "{{PLACEHOLDER_x}}"]))
def test_text_from_a_result_is_not_parsed(value: Any) -> None:
    scheduler = scheduler_of(
        node("a"),
        node("b", arguments={"whole": "{{a.result}}", "inside": "<{{a.result}}>"}),
        node("c", for_each=["{{a.result}}"], arguments={"all": "{{b.result}}", "one": "{{item}}"}),
        output={"of b": "{{b.result}}", "of c": ["{{c.result}}"]},
    )
    start_ready_tasks(scheduler)
    scheduler.complete("a", value, at=1.0)
    arguments_of_b = {"whole": value, "inside": f"<{as_text(value)}>"}
    arguments_of_c = {"all": arguments_of_b, "one": value}
    for expected in (arguments_of_b, arguments_of_c):
        (task,) = start_ready_tasks(scheduler)
        assert task.arguments == expected
        scheduler.complete(task.id, task.arguments, at=2.0)
    assert scheduler.output() == ({"of b": arguments_of_b, "of c": [[arguments_of_c]]}, None)


@settings(deadline=None)
@given(value_with_path=values_with_paths())
def test_formatted_path_parses_to_the_same_path(value_with_path: tuple[Any, tuple[str | int, ...], Any]) -> None:
    _, path, _ = value_with_path
    assert parse_path(format_path(path)) == path


REFERENCES = st.one_of(
    st.builds(ResultOf, IDS, st.sampled_from(["result", "status", "error"]), st.tuples(KEYS, st.integers(0, 3))),
    st.builds(ResultOf, IDS, st.just("result"), st.just("$..name")),
    st.builds(ResultOf, IDS, st.just("identity")),
    st.builds(Placeholder, st.just("x")),
    st.builds(Item, st.tuples(KEYS)),
    st.builds(Index),
    st.builds(Secret, st.just("KEY")),
)


@settings(deadline=None)
@given(template=st.lists(TEXTS | REFERENCES, min_size=1, max_size=4))
def test_template_is_unchanged_after_a_round_trip_through_json(template: list[TemplatePart]) -> None:
    plan = CompiledPlan(nodes=(CompiledNode(id="a", arguments={"x": [None]}, bindings=((("x", 0), tuple(template)),)),))
    assert plan_from_json(json.loads(json.dumps(plan_to_json(plan)))) == plan


@settings(deadline=None)
@given(value=st.dictionaries(KEYS, JSON_VALUES, min_size=1, max_size=3), result=JSON_VALUES, data=st.data())
def test_resolved_binding_changes_only_its_path(value: dict[str, Any], result: Any, data: st.DataObject) -> None:
    value_before = json.dumps(value)
    key = data.draw(st.sampled_from(sorted(value)))
    resolved_value = resolve_bindings(value, [((key,), (ResultOf("a", "result"),))], scope=scope_of({"a": result}))
    assert resolved_value == {**value, key: result}
    assert json.dumps(value) == value_before
