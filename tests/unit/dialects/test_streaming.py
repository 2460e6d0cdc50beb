"""Streaming of plan steps: each step is emitted when it is complete, however the text is split."""

import itertools
import json
import time
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagwright.dialects.plan_streaming import JsonStepParser, StreamedStep
from dagwright.dialects.written_text import read_written_json
from tests.support.example_counts import example_count

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.text(alphabet="ab{}[]\"'\\,:/#*“”‘’\n\u00e9😀", max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet='a"{]', max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)
entries = st.lists(st.dictionaries(st.sampled_from(["id", "nodes", "x", "'"]), json_values, min_size=1), max_size=4)


def steps_of(parser: JsonStepParser, pieces: Sequence[str]) -> list[StreamedStep]:
    return [step for piece in pieces for step in parser.feed(piece)]


def split_at(text: str, positions: Sequence[int]) -> list[str]:
    bounds = [0, *sorted(positions), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(bounds)]


def format_json(value: Any, style: int) -> str:
    return json.dumps(value, indent=style % 3 or None, ensure_ascii=style % 2 == 0)


_PROSE, _THOUGHT = "As [1] says:\n\n{}\nDone {{x}}.", '<think>{{"nodes": [{{"id": 1}}]}}</think>\n{}'
SURROUNDING_TEXTS = ("{}", "```json\n{}\n```", _PROSE, _THOUGHT, "\ufeff  {}")


@settings(max_examples=example_count(150), deadline=None)
@given(data=st.data())
def test_streamed_steps_equal_the_steps_of_the_complete_text_for_any_split(data: st.DataObject) -> None:
    nodes = data.draw(entries)
    root: Any = {"plan": 1, "title": data.draw(st.text(max_size=3)), "nodes": nodes, "output": data.draw(json_values)}
    if data.draw(st.booleans()) and nodes:
        root = nodes
    text = data.draw(st.sampled_from(SURROUNDING_TEXTS)).format(format_json(root, data.draw(st.integers(0, 5))))
    pieces = split_at(text, data.draw(st.lists(st.integers(0, len(text)), max_size=12)))
    actual = steps_of(JsonStepParser(), pieces)
    assert [step.value for step in actual] == nodes
    assert [step.index for step in actual] == list(range(len(nodes)))
    for step in actual:
        assert json.loads(text[step.start : step.end]) == step.value
    assert actual == steps_of(JsonStepParser(), list(text))
    if actual:
        value = read_written_json(text).value
        assert (value if isinstance(value, list) else value["nodes"]) == [step.value for step in actual]


TEXT_WITH_MISTAKES = """Here:
```json
{'plan': 1, // it's a "plan" {
 "inputs": {"nodes": [{"id": "no"}]}, # [{
 "nodes": [
  {'id': 'a', "x": True,}, /* } ]* */
  {“id”: “b's }”, y: 'c"}'}
 ],
 "nodes2": [{"id": "no"}]}
```
"""


@settings(deadline=None)
@given(st.lists(st.integers(0, len(TEXT_WITH_MISTAKES)), max_size=20))
def test_mistakes_of_models_are_repaired_for_any_split_of_the_text(positions: list[int]) -> None:
    parser = JsonStepParser()
    values = [step.value for step in steps_of(parser, split_at(TEXT_WITH_MISTAKES, positions))]
    assert values == [{"id": "a", "x": True}, {"id": "b's }", "y": 'c"}'}]
    assert (parser.problem, parser.is_complete) == (None, True)


def test_invalid_step_ends_the_stream_with_a_problem() -> None:
    parser = JsonStepParser()
    text = '{"nodes": [{"id": "a"}, {"id": "b" "x": 1}, {"id": "c"}]}'
    assert [step.value for step in steps_of(parser, list(text))] == [{"id": "a"}]
    assert parser.problem is not None
    reason = "',' or '}' is missing here, or an earlier quote was not escaped (character 36)"
    assert parser.problem.message == f"step 2 is ambiguous or invalid JSON: {reason}"


@pytest.mark.parametrize(
    "text",
    [
        "no plan",
        '{"a": [{"id": 1}]}',
        '{"nodes": {"a": [{"id": 1}]}}',
        '{"nodes": ["a", [{"id": 1}]]}',
        '{nodes: [{"id": 1}]}',
        '["a", [{"id": 1}]]',
        '{"nodes": [{"id": "a", "x": {"y": 1}',
    ],
)
def test_text_without_a_complete_step_emits_no_step(text: str) -> None:
    assert steps_of(JsonStepParser(), list(text)) == []


@pytest.mark.alone
@pytest.mark.parametrize(
    ("text", "piece_size"),
    [
        ('{"nodes": [' + '{"id": "a", "x": [1, "}"]}, ' * 5_000, 3),
        ('{"nodes": [{"id": "' + "x" * 300_000, 3),
        ('{"nodes": [{"id": "' + "\\\\" * 100_000, 1),
        ("[" * 100_000, 1),
        ("<think>" + "x" * 100_000, 1),
        (" " * 100_000, 1),
    ],
    ids=range(6),
)
def test_parsing_a_stream_takes_linear_time(text: str, piece_size: int) -> None:
    start = time.process_time()
    steps_of(JsonStepParser(), [text[offset : offset + piece_size] for offset in range(0, len(text), piece_size)])
    assert time.process_time() - start < 8
