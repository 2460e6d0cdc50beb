"""Reading of plans from files, standard input and JSON Lines, and of sub-plans from files."""

import json
from pathlib import Path
from typing import Any

import pytest

from dagwright.core.errors import PlanInvalid
from dagwright.dialects import reading
from dagwright.dialects.reading import inline_files, parse_plan_text, read_plan_file, read_plan_lines


def problems_of(function: Any, *arguments: Any, **options: Any) -> list[tuple[str, str, str]]:
    with pytest.raises(PlanInvalid) as caught:
        function(*arguments, **options)
    return [(problem.code, problem.pointer, problem.message) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ('{"a": "\\ud83d\\ude00"}', "-", {"a": "😀"}),
        ('{"a": "\\ud83d\\ude00"}', "x.yaml", {"a": "😀"}),
        ('{"a": [1,],}', "x.yml", {"a": [1]}),
        ("{a: no}", "-", {"a": "no"}),
        ("- id: a", "-", [{"id": "a"}]),
        ("a: 1", "plan", {"a": 1}),
        ("[]", "x.JSON", []),
        (b"\xef\xbb\xbf[]", "x.json", []),
        ("\ufeff[]", "-", []),
        (b"\xef\xbb\xbfa: 1", "x.yaml", {"a": 1}),
        ("7", "-", 7),
    ],
)
def test_format_is_derived_from_name_or_content(text: str | bytes, name: str, value: Any) -> None:
    assert parse_plan_text(text, name=name) == value


@pytest.mark.parametrize(
    ("text", "name", "code", "message"),
    [
        ("a: 1", "x.json", "invalid_syntax", "x.json is not valid JSON: expecting value at line 1, column 1"),
        ('{"a": NaN}', "-", "invalid_syntax", "standard input is not valid JSON: NaN is not a JSON number"),
        ('{"a": 1,}', "-", "invalid_syntax", "standard input is not valid JSON: a comma before '}'"),
        (b'{"a":\n "\xff"}', "x.json", "unreadable", "x.json is not UTF-8 text: byte 0xff in line 2"),
        ("a: \ud800", "-", "unreadable", "standard input holds a lone surrogate, which is not a character, in line 1"),
        ("", "-", "empty_plan", "standard input is empty"),
        (b" \n\t", "x.json", "empty_plan", "x.json is empty"),
        ("# only this", "x.yaml", "empty_plan", "x.yaml has no plan, only comments or null"),
        ("---\n", "-", "empty_plan", "standard input has no plan, only comments or null"),
    ],
)
def test_unreadable_file_is_reported_as_one_problem(text: str | bytes, name: str, code: str, message: str) -> None:
    ((found_code, pointer, actual),) = problems_of(parse_plan_text, text, name=name)
    assert (found_code, pointer) == (code, "")
    assert actual.startswith(message)


_INDENTATION_MESSAGE = "this line is indented more than the previous line, which already has a value"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nodes:\n\t- id: a\n", "a tab where YAML needs spaces at line 2, column 1"),
        ("nodes:\n  - id: a\n     tool: b\n", f"{_INDENTATION_MESSAGE} at line 3, column 10"),
        ('{"a": [1,]}', "a comma before ']'; remove it at line 1, column 10"),
        ('{"a": 1 "b": 2}', "a ',' is missing before this at line 1, column 9"),
        ('{"a": 1', "the text ends inside a list or an object at line 1, column 8"),
        ('{// x\n"a": 1}', "comments are not allowed; use YAML for them at line 1, column 2"),
    ],
)
def test_syntax_error_is_reported_with_a_correction(text: str, message: str) -> None:
    kind = "JSON" if text.startswith("{") else "YAML"
    name = f"p.{kind.lower()}"
    expected = [("invalid_syntax", "", f"{name} is not valid {kind}: {message}")]
    assert problems_of(parse_plan_text, text, name=name) == expected
    ((_, _, braces_message),) = problems_of(parse_plan_text, "a: {{b.result}}\n", name="p.yaml")
    assert "put {{…}} in quotes (line 1, column 5)" in braces_message


def test_plan_file_is_read_and_plan_lines_have_line_numbers(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text("plan: 1\nnodes: []\n")
    assert read_plan_file(path) == {"plan": 1, "nodes": []}
    path = tmp_path / "plans.jsonl"
    path.write_bytes(b'\xef\xbb\xbf[1]\n\n{"a": 2}\r\n{"a" 3}\n"\xff"\n{"a": 1, "a": 2}\n[4]')
    lines = list(read_plan_lines(path))
    assert [number for number, _ in lines] == [1, 3, 4, 5, 6, 7]
    assert [value for _, value in lines if not isinstance(value, PlanInvalid)] == [[1], {"a": 2}, [4]]
    problems = [value.problems[0] for _, value in lines if isinstance(value, PlanInvalid)]
    assert [problem.code for problem in problems] == ["invalid_syntax", "unreadable", "invalid_field"]
    assert problems[0].message.endswith("expecting ':' delimiter at line 4, column 6")


def test_invalid_plan_path_is_reported_as_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing_path, large_path = tmp_path / "none.json", tmp_path / "large.json"
    large_path.write_text("[      ]")
    assert problems_of(read_plan_file, missing_path) == [("unreadable", "", f"there is no file {missing_path}")]
    assert problems_of(read_plan_file, tmp_path) == [("unreadable", "", f"{tmp_path} is a folder, not a file")]
    assert problems_of(read_plan_file, tmp_path / "\0")[0][0] == "unreadable"
    assert problems_of(read_plan_file, tmp_path / ("x" * 300))[0][0] == "unreadable"
    assert problems_of(read_plan_file, large_path / "x")[0][0] == "unreadable"
    monkeypatch.setattr(reading, "MAX_FILE_BYTES", 5)
    assert problems_of(read_plan_file, large_path)[0][2].startswith(f"{large_path} is larger than")
    for file in (large_path, missing_path):
        assert problems_of(lambda file=file: list(read_plan_lines(file)))[0][0] == "unreadable"


def plan_with_sub_plans(*sub_plans: Any) -> dict[str, Any]:
    return {"plan": 1, "nodes": [{"id": f"n{index}", "plan": plan} for index, plan in enumerate(sub_plans)]}


def test_sub_plan_files_are_relative_to_the_including_file(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "leaf.json").write_text(json.dumps({"dag": []}))
    (tmp_path / "deep" / "middle.yaml").write_text("plan: 1\nnodes:\n - {id: x, plan: leaf.json}\n")
    document = plan_with_sub_plans("deep/middle.yaml", plan_with_sub_plans("deep/leaf.json"), {"dag": []})
    document_before = json.dumps(document)
    leaf: Any = {"dag": []}
    middle = {"plan": 1, "nodes": [{"id": "x", "plan": leaf}]}
    assert inline_files(document, base=tmp_path) == plan_with_sub_plans(middle, plan_with_sub_plans(leaf), leaf)
    assert json.dumps(document) == document_before


def test_all_invalid_files_are_reported_at_their_nodes(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text('{"a": 1, "a": 2}')
    actual = problems_of(
        inline_files, plan_with_sub_plans("none.json", "bad.json", plan_with_sub_plans("\0"), "."), base=tmp_path
    )
    assert [(code, pointer) for code, pointer, _ in actual] == [
        ("unreadable", "/nodes/0/plan"),
        ("invalid_field", "/nodes/1/plan/a"),
        ("unreadable", "/nodes/2/plan/nodes/0/plan"),
        ("unreadable", "/nodes/3/plan"),
    ]


def test_files_that_include_each_other_and_too_many_files_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(plan_with_sub_plans("b.json")))
    (tmp_path / "b.json").write_text(json.dumps(plan_with_sub_plans("./a.json")))
    pointer = "/nodes/0/plan/nodes/0/plan/nodes/0/plan"
    message = "these files include each other: a.json → b.json → a.json"
    assert problems_of(inline_files, plan_with_sub_plans("a.json"), base=tmp_path) == [("cycle", pointer, message)]
    for number in range(30):
        file_names = [f"{number + 1}.json"] * 2 if number < 29 else []
        (tmp_path / f"{number}.json").write_text(json.dumps(plan_with_sub_plans(*file_names)))
    expected = {"too_large", "too_many_problems"}
    assert {code for code, _, _ in problems_of(inline_files, plan_with_sub_plans("0.json"), base=tmp_path)} == expected
