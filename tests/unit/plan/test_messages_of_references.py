"""What a newcomer reads after a mistake in a reference or a condition: what is wrong, where, and what to write."""

import pytest

from tests.unit.plan.building import node, plan_of, problems_of


def _told(**fields: object) -> list[tuple[str, str, str | None, str, str | None]]:
    plan = plan_of(node("a"), node("b", **fields))
    return [(each.code, each.pointer, each.node, each.message, each.hint) for each in problems_of(plan)]


@pytest.mark.parametrize(
    ("when", "message", "hint"),
    [
        ("a.reslt > 1", "'a' has no field 'reslt'; a node has result, status, error", "did you mean 'result'?"),
        ("a.value > 1", "'a' has no field 'value'; a node has result, status, error", "write a.result.value"),
        ("a > 1", "'a' is a node and not a value", "write a.result"),
        (
            'nodes["a"].eror == null',
            "'a' has no field 'eror'; a node has result, status, error",
            "did you mean 'error'?",
        ),
        ("aa.result > 1", "there is no node 'aa'", "did you mean 'a'?"),
        ("a.result b", "column 10: 'b' is not expected here", None),
        ("a.result > ", "column 12: the condition ends too early, after 'a.result >'", None),
        ("a.result = 1", "column 10: '=' is not expected here", "write == to compare"),
        ("a.result === 1", "column 12: '=' is not expected here", "write == to compare"),
        ("a.result == 1 and true", "column 15: 'and' is not expected here", "write && for 'and'"),
        ("a.result == 1 or true", "column 15: 'or' is not expected here", "write || for 'or'"),
        ("not a.result", "column 5: 'a' is not expected here", "write ! for 'not'"),
        ("a.result <> 1", "column 11: '>' is not expected here", "write != for 'not equal'"),
        ("(a.result == 1", "column 15: ')' is missing", None),
        ("a.result == 'x", "column 13: the text after ' has no closing '", None),
        ("{{a.result}} > 1", "column 1: a condition has no {{ }}", "write the reference without braces"),
        ("", "the condition is empty", "write a comparison such as a.result > 1"),
        ("a.result == “x”", "column 13: '“' is not expected here", "write straight quotes: ' or \""),
        ("a.result == 1 &&\n  true b", "line 2, column 8: 'b' is not expected here", None),
        ("has(a)", "column 5: invalid argument to has() macro", None),
    ],
)
def test_wrong_condition_is_reported_in_plain_words(when: str, message: str, hint: str | None) -> None:
    [(code, place, node_id, told, advice)] = _told(when=when)
    assert (code, place, node_id) == ("invalid_field", "/nodes/1/when", "b")
    assert told.startswith(f"when: {message}")
    assert (advice is None) if hint is None else (advice or "").startswith(hint)


@pytest.mark.parametrize("when", ["has(a.result)", "a.status == 'failed'", "a.error.code == 'x'", "has(nodes.a)"])
def test_fields_of_a_node_can_be_read(when: str) -> None:
    assert _told(when=when) == []


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("{{a.reslt}}", "'a' has no field 'reslt'; a node has result, status, error", "did you mean 'result'?"),
        ("{{a.results.x}}", "'a' has no field 'results'; a node has result, status, error", "did you mean 'result'?"),
        ("{{a.rslt.result}}", "'a' has no field 'rslt'; a node has result, status, error", "did you mean 'result'?"),
        ("{{a.amount}}", "'a' has no field 'amount'; a node has", "write a.result.amount for a part of its result"),
        ("{{ a }}", "'a' is a node and not a value", "write {{a.result}}"),
        ("{{PLACEHOLER_x}}", "not a reference", "did you mean {{PLACEHOLDER_x}}?"),
        ("{{placeholder_x}}", "not a reference", "did you mean {{PLACEHOLDER_x}}?"),
        ("{{secrets.KEY}}", "not a reference", "did you mean {{secret.KEY}}?"),
    ],
)
def test_wrong_reference_has_a_hint(text: str, message: str, hint: str) -> None:
    [(code, place, node_id, told, advice)] = _told(arguments={"x": text})
    assert (code, place, node_id) == ("invalid_reference", "/nodes/1/arguments/x", "b")
    assert told.startswith(f"Invalid reference: {text}: {message}")
    assert advice == hint


@pytest.mark.parametrize(
    ("text", "hint"),
    [("{{itm}}", "did you mean {{item}}?"), ("{{ indx }}", "did you mean {{index}}?")],
)
def test_wrong_item_in_a_for_each_is_suggested(text: str, hint: str) -> None:
    [(_, _, _, _, advice)] = _told(for_each=[1], arguments={"x": text})
    assert (advice or "").startswith(hint)


def test_wrong_field_of_a_missing_node_names_the_node() -> None:
    [(_, _, _, message, _)] = _told(arguments={"x": "{{zz.reslt}}"})
    assert message == "Invalid reference: {{zz.reslt}}: there is no node 'zz'"
