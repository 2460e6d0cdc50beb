"""A misspelt key in the schema of an input is noted, because JSON Schema ignores it."""

from typing import Any

from dagwright.preparation import check_plan


def _notes(inputs: Any) -> list[tuple[str, str, str]]:
    checked = check_plan({"plan": 1, "inputs": inputs, "nodes": [{"id": "a", "tool": "t"}]}, {}, any_tool=True)
    return [(note.code, note.pointer, note.message) for note in checked.notes]


def test_misspelt_keyword_of_an_input_is_noted_with_the_right_one() -> None:
    assert _notes({"net": {"tpye": "number"}}) == [
        (
            "unknown_keyword",
            "/inputs/net/tpye",
            "inputs.net.tpye: 'tpye' is no keyword of JSON Schema and has no effect; did you mean 'type'?",
        )
    ]


def test_keywords_and_keys_of_an_author_are_not_noted() -> None:
    schema = {"type": "number", "prompt": "Net", "default": 1, "minimum": 0, "unit": "EUR", "x-order": 3}
    assert _notes({"net": schema}) == []
