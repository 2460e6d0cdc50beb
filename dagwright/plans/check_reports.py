"""The report of the check of a plan: the same fields in the command `check`, the HTTP API and the MCP server."""

from collections.abc import Mapping, Sequence
from typing import Any

from dagwright.core.errors import Problem
from dagwright.core.validation.checked_plan import CheckedPlan
from dagwright.core.validation.inputs import schema_of_form


def valid_plan_report(checked_plan: CheckedPlan) -> dict[str, Any]:
    """Return the report of a valid plan."""
    return {
        "status": "valid",
        "title": checked_plan.plan.title,
        "dialect": checked_plan.dialect,
        "node_count": len(checked_plan.nodes),
        "edge_count": checked_plan.edge_count,
        "critical_path": checked_plan.critical_path,
        "input_schema": schema_of_form(checked_plan.inputs),
        "notes": [note.to_json() for note in checked_plan.notes],
        "errors": [],
    }


def invalid_plan_report(problems: Sequence[Problem]) -> dict[str, Any]:
    """Return the report of an invalid plan."""
    errors: list[Mapping[str, Any]] = [problem.to_json() for problem in problems]
    return {"status": "invalid", "errors": errors}
