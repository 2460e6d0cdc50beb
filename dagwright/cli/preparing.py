"""What `run` does before there is a server: read the plan, find its tools, get its inputs, compile."""

from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from dagwright.cli.asking import ask_inputs
from dagwright.cli.exits import CommandRefused
from dagwright.cli.output import Output
from dagwright.cli.plans import read_inputs_file, read_pairs, read_plan, typed_inputs
from dagwright.cli.requests import RunRequest
from dagwright.plan.compiled import CompiledPlan
from dagwright.plan.durations import parse_duration
from dagwright.plan.errors import PlanInvalid
from dagwright.preparation import check_plan, input_problems, prepare_plan, unused_inputs
from dagwright.toolset import Toolset


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A run that can be started: its plan, the values of its inputs and its own deadline in seconds.

    Args:
        source: the plan as it was written, with all that its meaning hangs on: dialect and context.
    """

    plan: CompiledPlan
    source: dict[str, Any]
    inputs: dict[str, Any]
    deadline_s: float | None


def prepare_run(request: RunRequest, toolset: Toolset, output: Output) -> PreparedRun:
    """Returns what the request asks for, asking a person for missing inputs if one is there.

    Raises:
        PlanInvalid: the plan or its inputs are wrong.
        CommandRefused: an option is.
    """
    deadline_s = _deadline_s(request.timeout)
    context = read_pairs(request.context, option="--context")
    texts = read_pairs(request.inputs, option="--input")
    given = read_inputs_file(request.inputs_file)
    raw = read_plan(request.plan)
    checked = check_plan(raw, toolset.declarations(), dialect=request.dialect, context=context)
    typed, problems = typed_inputs(checked.inputs, texts)
    problems = [*unused_inputs(checked, texts), *problems]
    for problem in unused_inputs(checked, given):
        output.tell(f"--inputs: {request.inputs_file}: {problem.message}, so it is not used; {problem.hint}")
    values: dict[str, JsonValue] = {**given, **typed}
    if problems:
        wrong = input_problems(checked, values, given=[*values, *texts])
        raise PlanInvalid([*problems, *wrong])
    if request.is_asking and not request.is_detached and output.can_ask:
        values = ask_inputs(checked.inputs, values)
    source = {"plan": raw, "dialect": checked.dialect, "context": context}
    return PreparedRun(prepare_plan(checked, values), source, values, deadline_s)


def _deadline_s(timeout: str | None) -> float | None:
    if timeout is None:
        return None
    try:
        return parse_duration(timeout).total_seconds()
    except ValueError as error:
        raise CommandRefused(f"--timeout: {error}") from None
