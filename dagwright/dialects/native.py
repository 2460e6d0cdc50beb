"""Dagwright's own dialect, `plan`: the document is the plan, except for sub-plans in other dialects."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pydantic import JsonValue

from dagwright.core.errors import Note, PlanInvalid, Problem, ProblemList, pointer
from dagwright.core.model.document import Document
from dagwright.dialects.draft import STAND_IN_ACTION
from dagwright.dialects.json_reader import describe

_PLACEHOLDER_PLAN = {"plan": 1, "nodes": [{"id": "unread", **STAND_IN_ACTION}]}


def read_native(raw: JsonValue, *, read_sub_plan: Callable[[JsonValue], Document]) -> Document:
    """Return the document of a plan in Dagwright's own dialect.

    Args:
        read_sub_plan: translates a sub-plan in any dialect.

    Raises:
        PlanInvalid: the document is not an object.
    """
    if not isinstance(raw, dict):
        message = f"a plan is an object with the keys 'plan' and 'nodes', not {describe(raw)}"
        raise PlanInvalid([Problem("invalid_field", message)])
    raw_nodes = raw.get("nodes")
    if not isinstance(raw_nodes, list):
        return Document(plan=raw)
    if not raw_nodes:
        return Document(plan=raw, problems=[Problem("empty_plan", "the plan has no nodes", "/nodes")])
    nodes: list[Any] = raw_nodes
    pointers: dict[str, str] = {}
    problems: list[Problem] = ProblemList()
    notes: list[Note] = []
    sub_documents: dict[int, Document] = {}
    for index, node in enumerate(raw_nodes):
        if not isinstance(node, dict) or not isinstance(node.get("plan"), dict | list):
            continue
        at = pointer("nodes", index, "plan")
        try:
            document = read_sub_plan(node["plan"])
        except PlanInvalid as error:
            document = Document(plan=_PLACEHOLDER_PLAN, problems=error.problems, is_parsed=False)
        if document.plan is not node["plan"]:
            nodes = list(nodes) if nodes is raw_nodes else nodes
            nodes[index] = {**node, "plan": document.plan}
        pointers |= {
            at + plan_pointer: at + written_pointer for plan_pointer, written_pointer in document.pointers.items()
        }
        problems += [replace(problem, pointer=at + problem.pointer) for problem in document.problems]
        notes += document.notes
        sub_documents[index] = document
    plan = raw if nodes is raw_nodes else {**raw, "nodes": nodes}
    return Document(plan=plan, pointers=pointers, problems=problems, notes=notes, sub_documents=sub_documents)
