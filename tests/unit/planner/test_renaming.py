"""Nodes in the plan of a model get other ids if the run reserves their ids."""

from typing import Any

import pytest

from dagwright.core.model.document import Document
from dagwright.planner.reserved_ids import rename_reserved_ids


def renamed(*nodes: dict[str, Any]) -> list[dict[str, Any]] | None:
    found = rename_reserved_ids(Document({"nodes": list(nodes)}))
    return None if found is None else found[0]["nodes"]


def test_only_references_and_edges_change_with_the_id() -> None:
    node = {
        "id": "b",
        "title": "{{read.result}}",
        "tool": "read",
        "depends_on": ["read", "c"],
        "arguments": {"read": ["{{read.result[0].read}} of {{reader.result}}"], "text": "read.result"},
        "for_each": "{{ read.result }}",
        "plan": {
            "nodes": [{"id": "read", "tool": "x"}, {"id": "y", "tool": "x", "arguments": {"z": "{{read.result}}"}}]
        },
    }
    assert renamed({"id": "read", "tool": "x"}, node) == [
        {"id": "read_step", "tool": "x"},
        {
            **node,
            "depends_on": ["read_step", "c"],
            "arguments": {"read": ["{{read_step.result[0].read}} of {{reader.result}}"], "text": "read.result"},
            "for_each": "{{ read_step.result }}",
        },
    ]


def test_first_free_id_is_used() -> None:
    found = renamed({"id": "plan"}, {"id": "plan_step"}, {"id": "plan_step_2"})
    assert found is not None
    assert [node["id"] for node in found] == ["plan_step_3", "plan_step", "plan_step_2"]


@pytest.mark.parametrize(
    "other",
    [
        {"id": "b", "when": "size(read.result) > 0"},
        {"id": "read.result"},
        {"id": "b", "arguments": {"text": "\\{{read.result}}"}},
    ],
    ids=["condition", "longer id", "literal braces"],
)
def test_ambiguous_text_is_left_unchanged(other: dict[str, Any]) -> None:
    assert renamed({"id": "read"}, other) is None
