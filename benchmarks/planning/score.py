"""Compare a model's plans with the expected plans: F1 of nodes, edges and arguments, as in TaskBench.

Each plan yields four sets: its tools, the pairs of tools that an edge joins, the pairs of a tool and an argument name,
and these pairs with the argument's value. A tool called twice counts once. A reference to another node is replaced with
the name of that node's tool, so plans are compared without their ids. Members are counted over all plans together
(micro average), and F1 is the harmonic mean of precision and recall.

A response without a valid plan counts as a prediction of empty sets, so it lowers the recall. TaskBench omits such
responses and reports their number; here, the number is `Scores.response_count` minus `Scores.valid_count`.

Source: Shen et al., "TaskBench: Benchmarking Large Language Models for Task Automation" (2023), and `evaluate.py` of
its repository (`flatten`, binary F1 of links and of tasks with arguments).
"""

import json
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from dagwright.core.errors import PlanInvalid
from dagwright.core.expressions.reference_parser import BadReferences, parse_template
from dagwright.core.expressions.references import ResultOf
from dagwright.core.model.document import Document
from dagwright.core.model.plan import Node
from dagwright.core.model.tools import ToolDeclaration
from dagwright.core.validation.validation import check_document
from dagwright.dialects import to_document
from dagwright.dialects.foreign import map_texts
from dagwright.dialects.written_plan import read_written_plan


@dataclass(frozen=True, slots=True)
class PlanFacts:
    """The compared facts of a plan.

    Args:
        tools: tools that are called at least once.
        edges: (tool, tool that needs its result).
        argument_names: (tool, name).
        argument_values: (tool, name, value as canonical JSON).
    """

    tools: frozenset[str] = frozenset()
    edges: frozenset[tuple[str, str]] = frozenset()
    argument_names: frozenset[tuple[str, str]] = frozenset()
    argument_values: frozenset[tuple[str, str, str]] = frozenset()


NOTHING = PlanFacts()
"""The prediction of a response without a valid plan."""


@dataclass(frozen=True, slots=True)
class Score:
    """Score of one of the four sets, over all plans.

    Args:
        matched_count: number of members that were predicted and expected.
        predicted_count, expected_count: number of all members.
    """

    matched_count: int
    predicted_count: int
    expected_count: int

    @property
    def precision(self) -> float:
        """Share of the predicted members that were expected; 0 without predictions."""
        return self.matched_count / self.predicted_count if self.predicted_count else 0.0

    @property
    def recall(self) -> float:
        """Share of the expected members that were predicted; 0 if no member was expected."""
        return self.matched_count / self.expected_count if self.expected_count else 0.0

    @property
    def f1(self) -> float | None:
        """Harmonic mean of precision and recall; `None` without expected and predicted members."""
        total = self.predicted_count + self.expected_count
        return 2 * self.matched_count / total if total else None


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of a model's plans.

    Args:
        response_count: number of compared responses.
        valid_count: number of responses with a valid plan.
    """

    nodes: Score
    edges: Score
    argument_names: Score
    argument_values: Score
    response_count: int
    valid_count: int

    def to_json(self) -> dict[str, Any]:
        """Return the JSON for a report."""
        score_by_name: Mapping[str, Score] = {
            "node_f1": self.nodes,
            "edge_f1": self.edges,
            "argument_name_f1": self.argument_names,
            "argument_value_f1": self.argument_values,
        }
        return {
            "answers": self.response_count,
            "valid": self.valid_count,
            **{name: score.f1 for name, score in score_by_name.items()},
        }


def facts_of_plan(plan: JsonValue, *, tools: Mapping[str, ToolDeclaration] | None = None) -> PlanFacts:
    """Return the facts of a plan in any dialect.

    Raises:
        PlanInvalid: the plan is invalid.
    """
    return _facts(to_document(plan, tools=tools), tools)


def facts_of_response(text: str, *, tools: Mapping[str, ToolDeclaration] | None = None) -> PlanFacts | None:
    """Return the facts of the plan in a model's response; `None` without a valid plan."""
    try:
        document, _ = read_written_plan(text, tools=tools)
        return _facts(document, tools)
    except PlanInvalid:
        return None


def _facts(document: Document, tools: Mapping[str, ToolDeclaration] | None) -> PlanFacts:
    checked_plan = check_document(document, tools=tools or {}, allow_unknown_tools=not tools)
    tool_names = {node.id: _tool_name_of(node) for node in checked_plan.nodes}
    edges = {
        (tool_names[checked_plan.nodes[dependency].id], tool_names[node.id])
        for node, dependencies in zip(checked_plan.nodes, checked_plan.dependencies, strict=True)
        for dependency in dependencies
    }
    values = {
        (tool_names[node.id], key, json.dumps(_replace_ids(value, tool_names), sort_keys=True, ensure_ascii=False))
        for node in checked_plan.nodes
        for key, value in node.arguments.items()
    }
    return PlanFacts(
        tools=frozenset(tool_names.values()),
        edges=frozenset(edges),
        argument_names=frozenset((tool, key) for tool, key, _ in values),
        argument_values=frozenset(values),
    )


def _tool_name_of(node: Node) -> str:
    return node.tool or node.agent_name or ("plan" if node.plan is not None else "human")


def _replace_ids(value: Any, tool_names: Mapping[str, str]) -> Any:
    """Replace references to results of other nodes with the names of their tools."""

    def replace_references(text: str, _: object) -> str:
        try:
            parts = parse_template(text, tool_names)
        except BadReferences:
            return text
        return "".join(
            f"<{tool_names[part.node_id]}>"
            if isinstance(part, ResultOf)
            else part
            if isinstance(part, str)
            else f"<{part}>"
            for part in parts
        )

    return map_texts(value, replace_references)


def score(pairs: Iterable[tuple[PlanFacts, PlanFacts | None]], *, known_tools: Collection[str] | None = None) -> Scores:
    """Score predicted plans against expected plans.

    Args:
        pairs: (expected, predicted); `None` is a response without a valid plan.
        known_tools: names of tools; other predicted tools do not count, as in TaskBench. `None` counts all, so that an
            unknown tool costs precision.
    """
    pair_list = list(pairs)
    facts_of_pairs = [(expected, predicted or NOTHING) for expected, predicted in pair_list]
    nodes = [
        (expected.tools, predicted.tools if known_tools is None else predicted.tools & frozenset(known_tools))
        for expected, predicted in facts_of_pairs
    ]
    return Scores(
        nodes=_micro_score(nodes),
        edges=_micro_score((expected.edges, predicted.edges) for expected, predicted in facts_of_pairs),
        argument_names=_micro_score(
            (expected.argument_names, predicted.argument_names) for expected, predicted in facts_of_pairs
        ),
        argument_values=_micro_score(
            (expected.argument_values, predicted.argument_values) for expected, predicted in facts_of_pairs
        ),
        response_count=len(pair_list),
        valid_count=sum(predicted is not None for _, predicted in pair_list),
    )


def _micro_score(sets: Iterable[tuple[frozenset[Hashable], frozenset[Hashable]]]) -> Score:
    matched_count = predicted_count = expected_count = 0
    for expected_set, predicted_set in sets:
        matched_count += len(expected_set & predicted_set)
        predicted_count += len(predicted_set)
        expected_count += len(expected_set)
    return Score(matched_count, predicted_count, expected_count)
