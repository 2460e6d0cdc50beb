"""The form that a person fills in at a terminal."""

from collections.abc import Callable
from typing import Any

import pytest

from dagwright.interfaces.cli.answer_prompts import ask_answer
from dagwright.interfaces.cli.exit_codes import CommandError
from dagwright.interfaces.cli.input_prompts import ask_inputs
from tests.unit.interfaces.cli.open_requests import open_request

TypeLines = Callable[..., list[str]]


@pytest.fixture
def type_lines(monkeypatch: pytest.MonkeyPatch) -> TypeLines:
    """Function that simulates the typing of lines and then Ctrl-D. It returns the list that collects the questions."""

    def prepare(*lines: str) -> list[str]:
        unread_lines, questions = list(lines), list[str]()

        def read(question: str) -> str:
            questions.append(question)
            if not unread_lines:
                raise EOFError
            return unread_lines.pop(0)

        monkeypatch.setattr("builtins.input", read)
        return questions

    return prepare


def test_approval_is_yes_or_no(type_lines: TypeLines, capsys: pytest.CaptureFixture[str]) -> None:
    questions = type_lines("maybe", "Yes")
    request = open_request(tool="cbu.get", arguments={"cbu-id": "fund_1"}, entities={"fund_1": "Apex (fund)"})
    assert ask_answer(request) == {"approved": True}
    assert questions == ["Approve? (yes or no): "] * 2
    call = 'cbu.get with {\n  "cbu-id": "fund_1"\n}\nfund_1 is Apex (fund)'
    assert capsys.readouterr().out == f"check, for ann\nPublish?\n{call}\nanswer yes or no\n"
    for reason_text, reason in (("too dear", {"reason": "too dear"}), ("", {})):
        type_lines("no", reason_text)
        assert ask_answer(open_request()) == {"approved": False, **reason}


@pytest.mark.parametrize(
    ("options", "multiple", "lines", "selected"),
    [
        (["north", "south"], False, ["2"], ["south"]),
        (["north", "south"], False, ["east", "", "north"], ["north"]),
        ([3, 1, 2], False, ["1"], [1]),
        (["north", "south", "east"], True, ["1, 4", "1, east,"], ["north", "east"]),
        (["north", "south"], True, ["1,north", "1,south"], ["north", "south"]),
        ([{"name": "a"}, {"name": "b"}], False, ["2"], [{"name": "b"}]),
    ],
)
def test_options_are_chosen_by_number_or_name(
    type_lines: TypeLines, options: list[Any], multiple: bool, lines: list[str], selected: list[Any]
) -> None:
    type_lines(*lines)
    request = open_request(type="SELECTION", options=options, multiple=multiple)
    assert ask_answer(request) == {"selected": selected}


def test_form_asks_again_after_an_unknown_option_number(
    type_lines: TypeLines, capsys: pytest.CaptureFixture[str]
) -> None:
    request = open_request(type="SELECTION", options=["north", "south"], allow_text=True)
    type_lines("9", "0", "Smith 9")
    assert ask_answer(request) == {"text": "Smith 9"}
    hints = ["'9' is not one of the 2 options", "'0' is not one of the 2 options"]
    assert capsys.readouterr().out.splitlines()[-2:] == hints
    type_lines("12345678")
    assert ask_answer(request) == {"text": "12345678"}


def test_form_asks_for_the_value_of_a_failed_node(type_lines: TypeLines) -> None:
    type_lines("value", '{"total": 5}')
    request = open_request(type="SELECTION", options=["retry", "value", "skip", "stop"], purpose="error")
    assert ask_answer(request) == {"selected": ["value"], "value": {"total": 5}}


@pytest.mark.parametrize("request_type", ["GUIDANCE", "CLARIFICATION"])
def test_text_may_have_many_lines(type_lines: TypeLines, request_type: str) -> None:
    for end_lines in ([], ["."]):
        type_lines("First.", "", "Second.", *end_lines)
        assert ask_answer(open_request(type=request_type)) == {"text": "First.\n\nSecond."}


def test_invalid_fields_are_asked_for_again(type_lines: TypeLines, capsys: pytest.CaptureFixture[str]) -> None:
    amount = {"type": "integer", "minimum": 1, "prompt": "How much?"}
    currency = {"enum": ["EUR", "USD"], "default": "EUR"}
    properties = {"amount": amount, "currency": currency, "remark": {"type": "string"}}
    schema = {"type": "object", "properties": properties, "required": ["amount"]}
    questions = type_lines("many", "0", "", "12", "", "")
    answer = ask_answer(open_request(type="INFORMATION", prompt="", schema=schema))
    assert answer == {"data": {"amount": 12, "currency": "EUR"}}
    other_questions = ["currency [EUR | USD] (empty: EUR): ", "remark (optional): "]
    assert questions == [*["How much? (a whole number): "] * 4, *other_questions]
    assert capsys.readouterr().out.splitlines() == [
        "check, for ann",
        "enter a whole number, not 'many'",
        "0 is less than the minimum of 1",
        "enter a whole number, not ''",
    ]


@pytest.mark.parametrize(
    ("schema", "lines", "value", "hints"),
    [
        ({"type": "boolean"}, ["perhaps", "Y"], True, ["answer yes or no"]),
        ({"type": "boolean"}, ["no"], False, []),
        ({"type": "array", "items": {"type": "integer"}}, ["1, b", "1, 2"], [1, 2], ["enter a whole number, not 'b'"]),
        ({"type": "array"}, ['["a, b", 1]'], ["a, b", 1], []),
        ({"type": "array"}, ["north, south"], ["north", "south"], []),
        ({"type": "object"}, ["a: 1", '{"a": 1}'], {"a": 1}, ["enter a JSON object, not 'a: 1'"]),
        ({"type": "number"}, ["x", "2.5"], 2.5, ["enter a number, not 'x'"]),
        ({"enum": ["EU", 7]}, ["us", "eu"], "EU", ["choose one of EU, 7"]),
        ({"enum": ["EU", 7]}, ["7"], 7, []),
    ],
)
def test_text_is_converted_to_the_type_of_the_field(
    type_lines: TypeLines,
    capsys: pytest.CaptureFixture[str],
    schema: Any,
    lines: list[str],
    value: Any,
    hints: list[str],
) -> None:
    type_lines(*lines)
    form = {"type": "object", "properties": {"x": schema}, "required": ["x"]}
    assert ask_answer(open_request(type="INFORMATION", prompt="", schema=form)) == {"data": {"x": value}}
    assert capsys.readouterr().out.splitlines()[1:] == hints


def test_form_for_missing_inputs_includes_inputs_with_a_default(type_lines: TypeLines) -> None:
    input_schemas: dict[str, dict[str, Any]] = {
        "count": {"type": "integer"},
        "quarter": {"enum": ["Q1", "Q2"], "default": "Q1", "prompt": "Which quarter?"},
        "zone": {"default": "EU"},
    }
    questions = type_lines("3", "", "US")
    assert ask_inputs(input_schemas, {}) == {"count": 3, "quarter": "Q1", "zone": "US"}
    assert questions == ["count (a whole number): ", "Which quarter? [Q1 | Q2] (empty: Q1): ", "zone (empty: EU): "]
    assert ask_inputs(input_schemas, {"count": 3}) == {"count": 3}


def test_form_that_does_not_match_its_schema_is_repeated(type_lines: TypeLines) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "minProperties": 1}
    type_lines("", "", "1", "")
    assert ask_answer(open_request(type="INFORMATION", schema=schema)) == {"data": {"a": 1}}
    type_lines("[]", '{"any": true}')
    assert ask_answer(open_request(type="INFORMATION")) == {"data": {"any": True}}


@pytest.mark.parametrize("request_type", ["APPROVAL", "SELECTION", "GUIDANCE", "INFORMATION"])
def test_end_of_the_input_leaves_the_request_open(type_lines: TypeLines, request_type: str) -> None:
    type_lines()
    options = ["a"] if request_type == "SELECTION" else None
    with pytest.raises(CommandError, match=r"^no answer was given; the request stays open$") as error:
        ask_answer(open_request(type=request_type, options=options))
    assert error.value.code == "not_answered"
