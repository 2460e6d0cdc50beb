"""The form that a person at a terminal fills in."""

from collections.abc import Callable
from typing import Any

import pytest

from dagwright.interfaces.cli.asking import ask_inputs
from dagwright.interfaces.cli.exits import CommandRefused
from dagwright.interfaces.cli.forms import ask_answer
from tests.unit.cli.questions import asked

Typing = Callable[..., list[str]]


@pytest.fixture
def typing(monkeypatch: pytest.MonkeyPatch) -> Typing:
    """Types these lines, then Ctrl-D; returns the questions as they are asked."""

    def prepare(*lines: str) -> list[str]:
        left, questions = list(lines), list[str]()

        def read(question: str) -> str:
            questions.append(question)
            if not left:
                raise EOFError
            return left.pop(0)

        monkeypatch.setattr("builtins.input", read)
        return questions

    return prepare


def test_approval_names_the_parties_of_the_call(typing: Typing, capsys: pytest.CaptureFixture[str]) -> None:
    typing("yes")
    ask_answer(asked(tool="cbu.get", arguments={"cbu-id": "fund_1"}, parties={"fund_1": "Apex (fund)"}))
    assert capsys.readouterr().out.splitlines()[-1] == "fund_1 is Apex (fund)"


def test_approval_is_yes_or_no(typing: Typing, capsys: pytest.CaptureFixture[str]) -> None:
    questions = typing("maybe", "Yes")
    answer = ask_answer(asked(tool="publish", arguments={"to": "all"}))

    assert answer == {"approved": True}
    assert questions == ["Approve? (yes or no): "] * 2
    assert capsys.readouterr().out == ('check, for ann\nPublish?\npublish with {\n  "to": "all"\n}\nanswer yes or no\n')


@pytest.mark.parametrize(
    ("why", "answer"), [("too dear", {"approved": False, "reason": "too dear"}), ("", {"approved": False})]
)
def test_rejection_may_have_a_reason(typing: Typing, why: str, answer: dict[str, Any]) -> None:
    typing("no", why)
    assert ask_answer(asked()) == answer


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
def test_options_are_chosen_by_words_or_number(
    typing: Typing, options: list[Any], multiple: bool, lines: list[str], selected: list[Any]
) -> None:
    typing(*lines)
    request = asked(type="SELECTION", options=options, multiple=multiple)
    assert ask_answer(request) == {"selected": selected}


def test_number_of_no_option_is_asked_again_and_another_text_is_taken(
    typing: Typing, capsys: pytest.CaptureFixture[str]
) -> None:
    request = asked(type="SELECTION", options=["north", "south"], takes_text=True)
    typing("9", "0", "Smith 9")
    assert ask_answer(request) == {"text": "Smith 9"}
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "'9' is none of the 2 options",
        "'0' is none of the 2 options",
    ]
    typing("12345678")
    assert ask_answer(request) == {"text": "12345678"}


def test_value_in_place_of_a_failed_result_is_asked_for(typing: Typing) -> None:
    typing("value", '{"total": 5}')
    request = asked(type="SELECTION", options=["retry", "value", "skip", "stop"], purpose="error")
    assert ask_answer(request) == {"selected": ["value"], "value": {"total": 5}}


@pytest.mark.parametrize("lines", [["First.", "", "Second.", "."], ["First.", "", "Second."]])
@pytest.mark.parametrize("kind", ["GUIDANCE", "CLARIFICATION"])
def test_text_has_many_lines(typing: Typing, kind: str, lines: list[str]) -> None:
    typing(*lines)
    assert ask_answer(asked(type=kind)) == {"text": "First.\n\nSecond."}


def test_fields_are_typed_checked_and_asked_again(typing: Typing, capsys: pytest.CaptureFixture[str]) -> None:
    schema = {
        "type": "object",
        "properties": {
            "amount": {"type": "integer", "minimum": 1, "prompt": "How much?"},
            "currency": {"enum": ["EUR", "USD"], "default": "EUR"},
            "remark": {"type": "string"},
        },
        "required": ["amount"],
    }
    questions = typing("many", "0", "", "12", "", "")
    answer = ask_answer(asked(type="INFORMATION", prompt="", schema=schema))

    assert answer == {"data": {"amount": 12, "currency": "EUR"}}
    assert questions == [
        *["How much? (a whole number): "] * 4,
        "currency [EUR | USD] (empty: EUR): ",
        "remark (may be empty): ",
    ]
    assert capsys.readouterr().out == (
        "check, for ann\ntype a whole number, not 'many'\n0 is less than the minimum of 1\n"
        "type a whole number, not ''\n"
    )


@pytest.mark.parametrize(
    ("schema", "lines", "value", "told"),
    [
        ({"type": "boolean"}, ["perhaps", "Y"], True, ["answer yes or no"]),
        ({"type": "boolean"}, ["no"], False, []),
        ({"type": "array", "items": {"type": "integer"}}, ["1, b", "1, 2"], [1, 2], ["type a whole number, not 'b'"]),
        ({"type": "array"}, ['["a, b", 1]'], ["a, b", 1], []),
        ({"type": "array"}, ["north, south"], ["north", "south"], []),
        ({"type": "object"}, ["a: 1", '{"a": 1}'], {"a": 1}, ["type an object, as JSON, not 'a: 1'"]),
        ({"type": "number"}, ["x", "2.5"], 2.5, ["type a number, not 'x'"]),
        ({"enum": ["EU", 7]}, ["us", "eu"], "EU", ["choose one of EU, 7"]),
        ({"enum": ["EU", 7]}, ["7"], 7, []),
    ],
)
def test_field_is_typed_as_people_write_it(
    typing: Typing,
    capsys: pytest.CaptureFixture[str],
    schema: dict[str, Any],
    lines: list[str],
    value: Any,
    told: list[str],
) -> None:
    typing(*lines)
    form = {"type": "object", "properties": {"x": schema}, "required": ["x"]}
    assert ask_answer(asked(type="INFORMATION", prompt="", schema=form)) == {"data": {"x": value}}
    assert capsys.readouterr().out.splitlines()[1:] == told


def test_missing_inputs_are_asked_with_those_that_have_a_default(typing: Typing) -> None:
    declared: dict[str, dict[str, Any]] = {
        "count": {"type": "integer"},
        "quarter": {"enum": ["Q1", "Q2"], "default": "Q1", "prompt": "Which quarter?"},
        "zone": {"default": "EU"},
    }
    questions = typing("3", "", "US")
    assert ask_inputs(declared, {}) == {"count": 3, "quarter": "Q1", "zone": "US"}
    assert questions == [
        "count (a whole number): ", "Which quarter? [Q1 | Q2] (empty: Q1): ", "zone (empty: EU): "
    ]  # fmt: skip
    assert ask_inputs(declared, {"count": 3}) == {"count": 3}


def test_whole_that_the_schema_does_not_take_is_asked_again(typing: Typing) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "minProperties": 1}
    typing("", "", "1", "")
    assert ask_answer(asked(type="INFORMATION", schema=schema)) == {"data": {"a": 1}}


def test_schema_without_fields_takes_json(typing: Typing) -> None:
    typing("[]", '{"any": true}')
    assert ask_answer(asked(type="INFORMATION")) == {"data": {"any": True}}


@pytest.mark.parametrize(
    "request_of", [asked(), asked(type="SELECTION", options=["a"]), asked(type="GUIDANCE"), asked(type="INFORMATION")]
)
def test_end_of_the_input_answers_nothing(typing: Typing, request_of: dict[str, Any]) -> None:
    typing()
    with pytest.raises(CommandRefused) as refused:
        ask_answer(request_of)
    assert (str(refused.value), refused.value.status) == (
        "nothing was answered; the request stays open",
        "not_answered",
    )
