"""References, paths and queries: valid and invalid notations, and their values."""

from typing import Any

import pytest

from dagwright.core.expressions.compute_budget import MAX_WORK, ComputeBudget, ComputeBudgetExceeded
from dagwright.core.expressions.paths import MissingValue, get_value, parse_path
from dagwright.core.expressions.reference_parser import BadReferences, parse_template, walk_texts
from dagwright.core.expressions.references import (
    Index,
    Item,
    Placeholder,
    ResultOf,
    Scope,
    Template,
    UnresolvedReference,
    resolve_bindings,
    resolve_template,
)
from dagwright.core.expressions.stored_values import Secret
from dagwright.core.expressions.value_refs import bindings_of, format_value_refs, ref_for_display
from dagwright.features.run_scheduler import RunScheduler
from tests.support.plan_building import error_of, node, start_ready_tasks, started_run, statuses_of, work_of

IDS = {"a", "a b", "a.result", "fetch/mail (x)", "café", "x}} y", '"q"', "@result_1"}


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ("",)),
        ("$100 {not} { { } } \\n {{", ("$100 {not} { { } } \\n {{",)),
        ("{{a.result}}", (ResultOf("a", "result"),)),
        ("{{ a.result }}", (ResultOf("a", "result"),)),
        ("{{a.error.message}}", (ResultOf("a", "error", ("message",)),)),
        ("{{a.result.data[0].id}}", (ResultOf("a", "result", ("data", 0, "id")),)),
        ("{{a.result[-1]}}", (ResultOf("a", "result", (-1,)),)),
        ('{{a.result["odd key"].x}}', (ResultOf("a", "result", ("odd key", "x")),)),
        ("{{a.result['it\\'s']}}", (ResultOf("a", "result", ("it's",)),)),
        ('{{a.result["}}"]}}', (ResultOf("a", "result", ("}}",)),)),
        ('{{a.result["a\\"b"]}}', (ResultOf("a", "result", ('a"b',)),)),
        ("{{a.result.日本}}", (ResultOf("a", "result", ("日本",)),)),
        ("{{a.result.files[*].name}}", (ResultOf("a", "result", "$.files[*].name"),)),
        ("{{a.result..name}}", (ResultOf("a", "result", "$..name"),)),
        ("{{a.result[?@.price < 10]}}", (ResultOf("a", "result", "$[?@.price < 10]"),)),
        ("{{a.result[1:3]}}", (ResultOf("a", "result", "$[1:3]"),)),
        ("{{fetch/mail (x).result.n}}", (ResultOf("fetch/mail (x)", "result", ("n",)),)),
        ("{{cafe\u0301.result}}", (ResultOf("café", "result"),)),
        ("{{a.result.result}}", (ResultOf("a.result", "result"),)),
        ("{{a.result.x.result}}", (ResultOf("a", "result", ("x", "result")),)),
        ("{{x}} y.result}}", (ResultOf("x}} y", "result"),)),
        ('{{"q".result}}', (ResultOf('"q"', "result"),)),
        ("{{@result_1.result.id}}", (ResultOf("@result_1", "result", ("id",)),)),
        ("{{PLACEHOLDER_reply_to}}", (Placeholder("reply_to"),)),
        ("{{secret.API_KEY}}", (Secret("API_KEY"),)),
        ("{{item}}", (Item(),)),
        ("{{item.path[0]}}", (Item(("path", 0)),)),
        ("{{ index }}", (Index(),)),
        (
            "Total {{a.result}} of {{a b.result.n}}.",
            ("Total ", ResultOf("a", "result"), " of ", ResultOf("a b", "result", ("n",)), "."),
        ),
        ("{{a.result}}{{a.status}}", (ResultOf("a", "result"), ResultOf("a", "status"))),
        ("\\{{a.result}}", ("{{a.result}}",)),
        ("\\{{a}} {{a.result}}", ("{{a}} ", ResultOf("a", "result"))),
        ("\\\\{{a.result}}", ("\\{{a.result}}",)),
        ("{{{a.result}}}", ("{", ResultOf("a", "result"), "}")),
        ("{{ never closed", ("{{ never closed",)),
        ("}} {{a.result}} }}", ("}} ", ResultOf("a", "result"), " }}")),
    ],
)
def test_template_is_parsed_into_its_parts(text: str, parts: Template) -> None:
    assert parse_template(text, IDS) == parts


def _input_hint(name: str) -> str:
    return f"write {{{{PLACEHOLDER_{name}}}}} for the input {name!r}, or \\{{{{ where two braces are meant as text"


_UNKNOWN_FIELD = "'a' has no field 'resulting'; a node has result, status, error"


@pytest.mark.parametrize(
    ("text", "message", "hint", "unknown_node"),
    [
        ("{{b.result}}", "there is no node 'b'", None, "b"),
        ("x {{ gone.result.y }}", "there is no node 'gone'", None, "gone"),
        ("{{a}}", "'a' is a node and not a value", "write {{a.result}}", None),
        ("{{anything}}", "not a reference", _input_hint("anything"), None),
        ("{{ inputs.quarter }}", "not a reference", _input_hint("quarter"), None),
        ("{{any thing}}", "not a reference", "write \\{{ where two braces are meant as text", None),
        ("{{PLACEHOLDER_}}", "not a reference", "write \\{{ where two braces are meant as text", None),
        ("{{a.resulting}}", _UNKNOWN_FIELD, "did you mean 'result'?", None),
    ],
)
def test_invalid_reference_is_rejected_with_a_hint(
    text: str, message: str, hint: str | None, unknown_node: str | None
) -> None:
    with pytest.raises(BadReferences) as caught:
        parse_template(text, IDS)
    [invalid_reference] = caught.value.invalid_references
    actual = (invalid_reference.message, invalid_reference.hint, invalid_reference.unknown_node)
    assert actual == (message, hint, unknown_node)


def test_all_invalid_references_of_a_text_are_reported() -> None:
    text = "{{b.result}} {{a.result[?]}} {{a.result}} {{c.status}} {{b.result}} \\{{d.result}} {{a.result.x"
    with pytest.raises(BadReferences) as caught:
        parse_template(text, IDS)
    invalid_texts = [each.text for each in caught.value.invalid_references]
    assert invalid_texts == ["{{b.result}}", "{{a.result[?]}}", "{{c.status}}", "{{a.result.x"]
    assert [part for part in caught.value.parts if not isinstance(part, str)] == [ResultOf("a", "result")]


def test_texts_with_braces_are_found_in_a_value() -> None:
    value = {"b": ["x", "{{1}}", {"c": "{{2}}"}], "a": "{{3}}", "n": 5, "m": None}
    assert list(walk_texts(value)) == [(("b", 1), "{{1}}"), (("b", 2, "c"), "{{2}}"), (("a",), "{{3}}")]


VALUE = {"data": [{"id": 7, "odd key": True}, {"id": 8}], "n": None, "": 0, "-1": "minus"}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("", VALUE),
        (".data[0].id", 7),
        (".data[-1].id", 8),
        ('.data[0]["odd key"]', True),
        (".n", None),
        ('[""]', 0),
        (".data[*].id", [7, 8]),
        ("..id", [7, 8]),
        (".data[?@.id > 7]", [{"id": 8}]),
        (".data[0:1].id", [7]),
        (".nothing[*]", []),
        ("[-1]", "minus"),
    ],
)
def test_value_is_found_by_its_path(path: str, expected: Any) -> None:
    assert get_value(VALUE, parse_path(path), name="x") == expected


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (".emial", "'emial' not found in x; it has , -1, data, n"),
        (".data.id", "'id' not found in x.data; it is a list of 2"),
        (".data[2]", "[2] not found in x.data; it has 2 items"),
        (".n.deep", "'deep' not found in x.n; it is null"),
        (".data[0].id.x", "'x' not found in x.data[0].id; it is a number"),
        ('.data[0]["odd key"].x', "'x' not found in x.data[0][\"odd key\"]; it is a boolean"),
        ('["-1"].x', "'x' not found in x.-1; it is a text"),
    ],
)
def test_missing_value_reports_where_its_path_ends_and_the_existing_parts(path: str, message: str) -> None:
    with pytest.raises(MissingValue) as caught:
        get_value(VALUE, parse_path(path), name="x")
    assert str(caught.value) == message


def test_missing_value_error_names_the_reference_and_at_most_twelve_keys() -> None:
    with pytest.raises(MissingValue, match=r"it has k00, k01, .*, k11, …$"):
        get_value({f"k{number:02}": 0 for number in range(20)}, ("x",), name="a")
    with pytest.raises(UnresolvedReference, match=r"^Missing data: item\.z: 'z' not found in item; it has k$"):
        resolve_template((Item(("z",)),), scope=scope())


@pytest.mark.parametrize("path", ["x", ".", "[", "[?]", ".a b", "[a]", "." * 50, "[" * 5_000])
def test_text_that_is_not_a_path_is_rejected(path: str) -> None:
    with pytest.raises(ValueError, match="is not a path"):
        parse_path(path)


def scope(**results: Any) -> Scope:
    def value_of(node_id: str, part: str) -> Any:
        return results[node_id] if part == "result" else "completed"

    return Scope(value_of, {"who": "Ann", "n": 5}, item={"k": [1]}, index=2)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ((ResultOf("a", "result"),), {"x": [1, None]}),
        ((ResultOf("a", "result", ("x", 0)),), 1),
        (("n=", ResultOf("a", "result", ("x", 0)), " ", ResultOf("a", "result")), 'n=1 {"x":[1,null]}'),
        (("-", ResultOf("b", "result"), "-"), '-q"\n\\{{a.result}}$1-'),
        ((ResultOf("a", "result", "$.x[*]"),), [1, None]),
        ((ResultOf("c", "identity"),), "id-7"),
        ((ResultOf("a", "identity"),), {"x": [1, None]}),
        ((Placeholder("n"),), 5),
        (("to ", Placeholder("who")), "to Ann"),
        ((Item(),), {"k": [1]}),
        ((Item(("k", 0)), Index()), "12"),
        (("text {{only}}",), "text {{only}}"),
    ],
)
def test_template_resolves_to_its_value(template: Template, expected: Any) -> None:
    results = {"a": {"x": [1, None]}, "b": 'q"\n\\{{a.result}}$1', "c": {"id": "id-7", "n": 1}}
    assert resolve_template(template, scope=scope(**results)) == expected


def test_secret_is_bound_by_its_name_and_not_resolved() -> None:
    template = ("Bearer ", Secret("KEY"), "/", ResultOf("a", "result"))
    arguments = resolve_bindings({"h": {"x": None}}, [(("h", "x"), template)], scope=scope(a=1))
    assert format_value_refs(arguments, ref_for_display) == {"h": {"x": "Bearer {{secret.KEY}}/1"}}
    parts = [{"text": "Bearer "}, {"secret": "KEY"}, {"text": "/"}, {"text": "1"}]
    assert bindings_of(arguments) == [(("h", "x"), parts)]


ROWS = [{"kind": "ab"[number % 2], "n": number} for number in range(1_000)]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("[?search(@.x, '(a+)+$')]", r"search\(\) cannot be used in a query"),
        ("[?match(@.x, 'a')]", r"match\(\) cannot be used in a query"),
        ("[?@.n > 1 && !(search(@.x, 'a') || @.x == 1)]", r"search\(\) cannot be used in a query"),
        ("[?@[?search(@.x, 'a')]]", r"search\(\) cannot be used in a query"),
        ("[?@.x == $.y]", "a filter cannot use `\\$`"),
        ("[?count($..x) > 1]", "a filter cannot use `\\$`"),
        ("..a..b..c", "could take too long: a query has at most 2 times"),
        ("..a[?@..b[?@..c]]", "could take too long"),
        ("[?@.a][?@.b][?@.c][?@.d]", "could take too long"),
        ("[0,0]" * 5, "could take too long"),
    ],
)
def test_query_that_could_take_too_long_is_rejected(path: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_path(path)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("[?@.kind == 'b' && @.n < 4].n", [1, 3]),
        ("[2:4].n", [2, 3]),
        ("[4:2:-1].n", [4, 3]),
        ("[::0]", []),
        ("[-1,0]['n','kind']", [999, "b", 0, "a"]),
        ("[?count(@.*) == 3]", []),
        ("[?length(@.kind) == 2]", []),
        (".x[0][?@.y]", []),
    ],
)
def test_query_finds_its_matches_in_document_order(path: str, expected: list[Any]) -> None:
    assert get_value(ROWS, parse_path(path), name="x") == expected


@pytest.mark.parametrize(
    ("value", "path", "work"),
    [
        (ROWS, "[2:4].n", 30),
        ({"rows": ROWS}, ".rows[10:20].n", 110),
        (ROWS, "[*].n", 10_010),
        (ROWS, "[?@.n > 5]", 20_010),
        (ROWS, "[?@.n > 5].kind", 20_010),
        (ROWS, "..n", 30_020),
        (ROWS, "..*..*", 90_040),
    ],
)
def test_query_costs_as_much_as_the_values_that_it_visits(value: Any, path: str, work: int) -> None:
    budget = ComputeBudget()
    get_value(value, parse_path(path), name="x", budget=budget)
    assert MAX_WORK - budget.remaining == work


def test_query_over_the_budget_is_rejected_with_the_limit() -> None:
    budget = ComputeBudget(2_000)
    budget.spend(500)
    with pytest.raises(ComputeBudgetExceeded) as error:
        budget.spend(1_501)
    assert str(error.value) == (
        "it reads too much: it needs about 1,501 units of work, but only 1,500 of 2,000 are left for this moment of "
        "the run; compute the value in a tool and read the result of the tool"
    )
    budget.start(1.0)
    assert budget.remaining == 2_000
    value: Any = None
    for _ in range(90):
        value = {"x": value, "y": list(range(300))}
    with pytest.raises(ComputeBudgetExceeded, match="x: it reads too much"):
        get_value(value, parse_path("..x..y[?@ > 5]"), name="x")


def test_query_that_many_items_share_is_evaluated_once() -> None:
    query = "{{rows.result[?@.kind == 'b'].n}}"
    map_node = node("m", for_each=list(range(200)), key="k{{item}}", arguments={"of": query})
    scheduler = started_run(node("rows"), map_node)
    scheduler.complete("rows", ROWS, at=1.0)
    tasks = start_ready_tasks(scheduler, at=1.0)
    assert [task.arguments["of"] == list(range(1, 1_000, 2)) for task in tasks] == [True] * 200
    assert work_of(scheduler) == 20_010 + 200 * 21


def scheduler_with_distinct_queries(count: int, rows: list[Any], **fields: Any) -> RunScheduler:
    nodes = [node(f"n{number}", arguments={"x": f"{{{{a.result[?@.n > {number}]}}}}"}) for number in range(count)]
    scheduler = started_run(node("a"), *nodes, **fields)
    scheduler.complete("a", rows, at=1.0)
    return scheduler


def test_query_that_exceeds_the_budget_of_an_activation_fails_its_node_or_output() -> None:
    scheduler = scheduler_with_distinct_queries(8, ROWS)
    # Leave only a tenth of the budget, so that eight queries on a short list exceed the budget.
    scheduler.state.compute_budget.start(1.0)
    scheduler.state.compute_budget.charge(MAX_WORK - MAX_WORK // 10)
    assert [task.id for task in start_ready_tasks(scheduler, at=1.0)] == [f"n{number}" for number in range(7)]
    assert statuses_of(scheduler)["n7"] == "failed"
    prefix = "the query '$[?@.n > 7]' on a.result: it reads too much: it needs about 20,010 units of work"
    code, message = error_of(scheduler, "n7")
    assert (code, message[: len(prefix)]) == ("too_large", prefix)
    output = {f"x{number}": f"{{{{a.result[?@.n > {number}]}}}}" for number in range(8)}
    value, error = scheduler_with_distinct_queries(0, ROWS * 10, output=output).output()
    assert (value, error and error.code) == (None, "too_large")
