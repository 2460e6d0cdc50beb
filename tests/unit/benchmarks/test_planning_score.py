"""The scores of recorded plans, compared with manual counts."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.planning.score import PlanFacts, Score, facts_of_plan, facts_of_response, score
from dagwright.core.errors import PlanInvalid

RECORDED_PLANS = json.loads((Path(__file__).parent / "recorded_plans.json").read_text(encoding="utf-8"))
PAIRS = [(facts_of_plan(entry["expected"]), facts_of_response(entry["answer"])) for entry in RECORDED_PLANS]


def test_facts_of_a_plan_contain_tool_names_instead_of_node_ids() -> None:
    expected, predicted = PAIRS[0]
    assert expected == PlanFacts(
        tools=frozenset({"search", "calculator"}),
        edges=frozenset({("search", "calculator")}),
        argument_names=frozenset({("search", "query"), ("calculator", "expression")}),
        argument_values=frozenset(
            {("search", "query", '"height of Mount Everest"'), ("calculator", "expression", '"<search> / 2"')}
        ),
    )
    assert predicted == expected


def test_scores_of_recorded_plans_match_manual_counts() -> None:
    scores = score(PAIRS)
    # Tools: plan 1 matches 2 of 2. Plan 2 matches 2 of 3 and predicts an unexpected tool. Plan 3 matches 0 of 1.
    assert scores.nodes == Score(matched_count=4, predicted_count=5, expected_count=6)
    # Edges: plan 1 matches 1 of 1. Plan 2 predicts read → send → translate and matches none of read → sum → send.
    assert scores.edges == Score(matched_count=1, predicted_count=3, expected_count=3)
    # Argument names: plan 1 matches 2 of 2. Plan 2 matches 3 of 4 and predicts 2 wrong names. Plan 3 matches 0 of 1.
    assert scores.argument_names == Score(matched_count=5, predicted_count=7, expected_count=7)
    # Argument values: plan 1 matches 2 of 2. Plan 2 matches only `path`.
    assert scores.argument_values == Score(matched_count=3, predicted_count=7, expected_count=7)
    assert (scores.response_count, scores.valid_count) == (3, 2)
    assert scores.to_json() == {
        **{"answers": 3, "valid": 2, "node_f1": pytest.approx(8 / 11), "edge_f1": pytest.approx(1 / 3)},
        **{"argument_name_f1": pytest.approx(5 / 7), "argument_value_f1": pytest.approx(3 / 7)},
    }
    assert (scores.nodes.precision, scores.nodes.recall) == (4 / 5, 4 / 6)


def test_unknown_tools_do_not_count_if_the_known_tools_are_given() -> None:
    tools = ["search", "calculator", "read_file", "summarize", "send_mail"]
    assert score(PAIRS, known_tools=tools).nodes == Score(matched_count=4, predicted_count=4, expected_count=6)


def test_repeated_calls_count_once_and_equal_plans_of_two_dialects_have_equal_facts() -> None:
    nodes = [{"id": node_id, "tool": "t", "arguments": {"x": 1}} for node_id in ("a", "b")]
    last_node = {"id": "c", "tool": "u", "arguments": {"y": ["{{b.result}}"]}}
    dagwright_plan = {"plan": 1, "nodes": [*nodes, last_node]}
    nestful_plan: Any = [
        {"name": "t", "arguments": {"x": 1}, "label": "var1"},
        {"name": "u", "arguments": {"y": ["$var1.z$"]}, "label": "var2"},
    ]
    assert facts_of_plan(dagwright_plan) == facts_of_plan(nestful_plan)  # type: ignore[arg-type] # a literal of JSON


def test_f1_is_none_if_nothing_is_expected_or_predicted() -> None:
    assert Score(0, 0, 0).f1 is None
    assert (Score(0, 0, 3).f1, Score(0, 2, 0).f1, Score(2, 2, 2).f1) == (0.0, 0.0, 1.0)


def test_expected_plan_has_to_be_valid() -> None:
    with pytest.raises(PlanInvalid):
        facts_of_plan({"plan": 1, "nodes": [{"id": "a", "tool": "t", "depends_on": ["b"]}]})


@given(
    st.lists(
        st.tuples(st.frozensets(st.sampled_from("abcd")), st.frozensets(st.sampled_from("abcd"))),
        min_size=1,
        max_size=5,
    )
)
def test_f1_matches_the_definition_of_taskbench(pairs: list[tuple[frozenset[str], frozenset[str]]]) -> None:
    """TaskBench computes one binary F1 for all pairs of sets.

    Each member of the union of a pair has two flags: whether it is expected, and whether it is predicted.
    """
    flags = [(name in expected, name in predicted) for expected, predicted in pairs for name in expected | predicted]
    true_positives = sum(expected and predicted for expected, predicted in flags)
    mismatches = sum(expected != predicted for expected, predicted in flags)
    actual = score([(PlanFacts(tools=expected), PlanFacts(tools=predicted)) for expected, predicted in pairs]).nodes
    assert actual.f1 == (2 * true_positives / (2 * true_positives + mismatches) if flags else None)
