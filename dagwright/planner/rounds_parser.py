"""Parse an answer of a planner of rounds into sub-goals that a run can start, or into a list of all problems.

The activity that called the model also parses the answer, so a round needs no second activity. The answer is checked
against the state of the run at the time of the call. The answer is untrusted: it may use only the worker tools of the
prompt, existing slots, and arguments that the worker tools accept. It must not repeat completed work.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dagwright.core.errors import PlanInvalid, Problem
from dagwright.core.expressions.value_refs import encoded_size
from dagwright.core.text import cut_for_model
from dagwright.core.validation.worker_tools import WorkerTool, worker_tools_among
from dagwright.dialects.json_reader import printable
from dagwright.dialects.written_text import read_written_json
from dagwright.dialects.written_values import NOT_A_NUMBER, TRUNCATED, Repair
from dagwright.planner.prompts import repair_message
from dagwright.planner.sub_goal_checks import REPEATED_WORK, RoundChecks
from dagwright.planner.sub_goal_fields import FieldParser, decode_json_strings
from dagwright.planning.plan_and_execute.goal_spec import decode_tools
from dagwright.planning.rounds.sub_goals import INPUTS, SUB_GOALS, PlannedSubGoal, RoundContext

ROUND_BYTES = 96 * 1024
"""Limit for the JSON of one answer. The history and the state of the run contain it."""
REASONING_CHARACTERS = 4_000
_ACTIONS = ("continue", "done", "failed")
_SUMMARY_CHARACTERS = 1_000
_MAX_PROBLEMS = 100
_PROBLEMS_BYTES = 32 * 1024
_MESSAGE_CHARACTERS = 1_000


def parse_round(output: Any, text: str, round_context: RoundContext) -> dict[str, Any]:
    """Parse an answer into `{"valid": true, "action", "reasoning", …}`.

    An invalid answer results in `{"valid": false, "problems", "repair": message for the planner, "message": summary of
    the problems, "repeats": whether the answer repeats completed work}`.

    Args:
        output: the answer, if it fits the response format; `None` to extract it from the text.
        text: the whole text of the model's answer.
        round_context: worker tools and known sub-goals, to check the answer against.

    Raises:
        ValueError: `round_context` is invalid.
    """
    worker_tools = worker_tools_among(decode_tools(list(round_context.workers)))
    answer: Any = None
    try:
        answer, repairs = _answer_document(output, text)
        round_document = _parse_answer(answer, round_context, worker_tools, repairs)
        if (size := encoded_size(round_document)) > ROUND_BYTES:
            message = f"the answer has {size:,} bytes; at most {ROUND_BYTES:,} are allowed"
            hint = "start fewer sub-goals, and let workers find long values"
            raise PlanInvalid([Problem("too_large", message, hint=hint)])
    except PlanInvalid as invalid:
        return _serialize_rejection(invalid.problems, answer)
    return round_document


def _answer_document(output: Any, text: str) -> tuple[Any, Sequence[Repair]]:
    if output is not None and not isinstance(output, str):
        return decode_json_strings(output), ()
    content = text if output is None else output
    if not content.strip():
        hint = "tools cannot be called directly: write one object with action, and name workers in its sub_goals"
        raise PlanInvalid([Problem("empty_plan", "the answer is empty", hint=hint)])
    written_json = read_written_json(content)
    return decode_json_strings(written_json.value), written_json.repairs


def _parse_answer(
    answer: Any, round_context: RoundContext, worker_tools: Mapping[str, WorkerTool], repairs: Sequence[Repair]
) -> dict[str, Any]:
    if truncation_problems := [
        Problem(TRUNCATED, f"a part of the answer is missing: {repair.message}")
        for repair in repairs
        if repair.code == TRUNCATED
    ]:
        raise PlanInvalid(truncation_problems)
    if nan_repairs := [repair for repair in repairs if repair.code == NOT_A_NUMBER]:
        hint = "write a number, or omit the field"
        # If NaN were read as null, a message about the value would quote `null`, which the planner did not write.
        raise PlanInvalid(
            [Problem("invalid_syntax", "NaN is not a JSON number", repair.pointer, hint=hint) for repair in nan_repairs]
        )
    if not isinstance(answer, Mapping):
        raise PlanInvalid([Problem("invalid_field", "the answer must be one object with 'action'")])
    reasoning = _reasoning(answer.get("reasoning"))
    document: dict[str, Any] = {"valid": True, "action": answer.get("action"), "reasoning": reasoning}
    checks = RoundChecks(round_context, worker_tools)
    match answer.get("action"):
        case "continue":
            problems, sub_goals = _parse_sub_goals(answer, checks)
            document["sub_goals"] = list(map(SUB_GOALS.encode, sub_goals))
        case "done":
            problems, inputs = checks.parse_synthesis_inputs(answer.get("synthesis_inputs"))
            document["synthesis_inputs"] = INPUTS.encode(inputs)
        case "failed":
            hint = "write in 'reasoning' why the question cannot be answered"
            problems = (
                []
                if reasoning.strip()
                else [Problem("invalid_field", "'failed' needs a reason", "/reasoning", hint=hint)]
            )
        case action:
            message = f"'action' must be {', '.join(_ACTIONS)}, not {action!r:.60}"
            problems = [Problem("invalid_field", message, "/action")]
    if problems:
        raise PlanInvalid(problems)
    return document


def _reasoning(content: Any) -> str:
    text = printable(content) if isinstance(content, str) else ""
    return cut_for_model(text, REASONING_CHARACTERS)


def _parse_sub_goals(answer: Mapping[str, Any], checks: RoundChecks) -> tuple[list[Problem], Sequence[PlannedSubGoal]]:
    """Return the problems of the sub-goals of an answer, and the sub-goals to start."""
    parser = FieldParser()
    sub_goals = parser.parse_sub_goals(answer.get("sub_goals"), checks.worker_tools)
    problems = [*parser.problems, *checks.problems_of(sub_goals, parser.invalid_goals)]
    return problems, () if problems else checks.new_sub_goals(
        [sub_goal for sub_goal in sub_goals if sub_goal is not None]
    )


def _serialize_rejection(problems: Sequence[Problem], answer: Any) -> dict[str, Any]:
    entries = [_serialize_problem(problem) for problem in problems[:_MAX_PROBLEMS]]
    while len(entries) > 1 and encoded_size(entries) > _PROBLEMS_BYTES:
        entries = entries[: len(entries) // 2]
    return {
        "valid": False,
        "reasoning": _reasoning(answer.get("reasoning")) if isinstance(answer, Mapping) else "",
        "problems": entries,
        "problem_count": len(problems),
        "repeats": any(problem.code == REPEATED_WORK for problem in problems),
        "message": "; ".join(_summary_parts(problems))[:_SUMMARY_CHARACTERS],
        "repair": repair_message(problems, profile="rounds"),
    }


def _serialize_problem(problem: Problem) -> dict[str, Any]:
    """Serialize a problem for the history, with long quoted values cut."""
    document = problem.to_json()
    return document | {
        name: cut_for_model(document[name], _MESSAGE_CHARACTERS)
        for name in ("message", "hint", "pointer")
        if document[name]
    }


def _summary_parts(problems: Sequence[Problem]) -> Iterator[str]:
    for problem in problems[:5]:
        yield f"{problem.code}{f' at {problem.pointer}' if problem.pointer else ''}: {problem.text}"
    if (omitted_count := len(problems) - 5) > 0:
        yield f"and {omitted_count} more"
