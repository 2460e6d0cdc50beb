"""From a document to a compiled plan with its inputs: what `check`, `run` and the activity `compile_plan` share."""

from collections.abc import Mapping
from typing import Any

from dagwright.contracts.documents import encoded_size
from dagwright.contracts.limits import INPUTS_LIMIT_BYTES, PLAN_STEPS
from dagwright.dialects import to_document
from dagwright.plan.compilation import compile_plan
from dagwright.plan.compiled import CompiledPlan
from dagwright.plan.errors import PlanInvalid, Problem
from dagwright.plan.inputs import missing_inputs, wrong_inputs
from dagwright.plan.regions import contract
from dagwright.plan.tools import ToolDeclaration
from dagwright.plan.validation import Checked, check_document


def check_plan(
    raw: Any,
    tools: Mapping[str, ToolDeclaration],
    *,
    dialect: str | None = None,
    context: Mapping[str, Any] | None = None,
    any_tool: bool = False,
) -> Checked:
    """Returns the checked plan of a document in any dialect.

    Raises:
        PlanInvalid: with everything that is wrong.
    """
    document = to_document(raw, dialect=dialect, context=context or {})
    return check_document(document, tools=tools, any_tool=any_tool)


def prepare_plan(checked: Checked, inputs: Mapping[str, Any]) -> CompiledPlan:
    """Returns the compiled plan of a checked one, ready to run with these inputs.

    Raises:
        PlanInvalid: an input is missing, unknown or of the wrong type; the plan uses what cannot run yet; or it is
            too large to be the input of a run.
    """
    problems = [*missing_inputs(checked.inputs, inputs), *wrong_inputs(checked.inputs, inputs)]
    if problems:
        raise PlanInvalid(problems)
    compiled = contract(compile_plan(checked))
    if (size := encoded_size(dict(inputs))) > INPUTS_LIMIT_BYTES:
        message = f"the inputs have {size:,} bytes; at most {INPUTS_LIMIT_BYTES:,} can be given to a run"
        raise PlanInvalid([Problem("too_large", message, hint="put them into a file and give its name")])
    if compiled.written_count > PLAN_STEPS:
        message = f"the plan has {compiled.written_count:,} nodes; at most {PLAN_STEPS:,} can be run"
        hint = "split it into sub-plans, or use for_each instead of many nodes"
        raise PlanInvalid([Problem("too_large", message, hint=hint)])
    return compiled
