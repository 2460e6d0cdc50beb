"""Parse a model's answer in the dialect `intents` into nodes of a run, or into a list of all problems.

The answer is untrusted. It is validated like any list of intents, and may use only the verbs and the names of entities
that the prompt lists. A plan without a valid confidence needs approval.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dagwright.core.compiler.plan_text import escaped_line
from dagwright.core.errors import PlanInvalid, Problem, pointer
from dagwright.core.expressions.references import Lookup
from dagwright.core.model.argument_checks import accepted_kinds
from dagwright.core.model.document import Document
from dagwright.core.model.tools import ToolDeclaration
from dagwright.core.validation.checked_plan import CheckedPlan
from dagwright.core.validation.validation import check_document
from dagwright.dialects import to_document
from dagwright.dialects.written_plan import repair_tool_names
from dagwright.dialects.written_text import read_written_json
from dagwright.dialects.written_values import TRUNCATED, Repair
from dagwright.planner.intents_schema import MAX_INTENTS
from dagwright.planner.plan_parser import ParsedPlan, build_parsed_plan, problems_of, reject_oversized_plan
from dagwright.planner.verbs import intent_verbs
from dagwright.planning.plan_and_execute.goal_spec import PlannedNodes

_ARGUMENT_GROUPS = ("params", "refs", "lookups")
_EXPLANATION_CHARACTERS = 1_000
"""Limit for the model's explanation in an approval request, in characters."""
_MAX_LOOKUPS = 20
_MAX_ORDER_CHARACTERS = 1_000
NOTHING_TO_DO = "There is nothing to do."


def parse_intents(
    plan: Any, text: str, tools: Mapping[str, ToolDeclaration], *, context: Mapping[str, Mapping[str, Any]]
) -> ParsedPlan:
    """Parse intents that a model wrote or a person edited. The list may be empty if there is an explanation.

    Args:
        plan: the answer, if it fits the response format or comes from a person; `None` to extract it from the text.
        text: the whole text of the model's answer.
        tools: the verbs, the tools that compensate their calls, and the tools of the resolver of lookups.
        context: entities of the session by name, each with its `id`.

    Raises:
        PlanInvalid: lists all errors and ambiguities in the terms of the dialect.
    """
    answer, repairs = _answer_document(plan, text)
    if isinstance(answer, dict):
        answer, field_repairs = _with_decoded_fields(answer)
        repairs = [*repairs, *field_repairs]
    truncation_problems = [
        Problem(TRUNCATED, f"a part of the answer is missing: {repair.message}")
        for repair in repairs
        if repair.code == TRUNCATED
    ]
    if isinstance(answer, dict) and answer.get("intents") == [] and not truncation_problems:
        return _plan_without_nodes(answer)
    problems = [*truncation_problems, *_answer_problems(answer)]
    try:
        document = to_document(
            answer, dialect="intents", context={name: dict(entity) for name, entity in context.items()}, tools=tools
        )
        verbs = intent_verbs(tools)
        document, name_repairs = repair_tool_names(document, verbs)
        problems += [*_compensating_call_problems(document, tools, verbs), *_entity_problems(answer, document, verbs)]
        checked_plan = check_document(document, tools=tools)
    except PlanInvalid as invalid:
        raise PlanInvalid(
            [*problems, *(_with_hint_for_model(problem, context) for problem in invalid.problems)]
        ) from None
    if problems := [*problems, *problems_of(checked_plan)]:
        raise PlanInvalid(problems)
    parsed_plan = build_parsed_plan(checked_plan, [*repairs, *name_repairs])
    result = replace(
        parsed_plan,
        document=_with_repaired_verbs(answer, document),
        summary=f"{_summary(answer, checked_plan)}\n{parsed_plan.summary}",
        model_fields=_explanation_fields(answer),
    )
    reject_oversized_plan(result)
    return result


def _answer_document(plan: Any, text: str) -> tuple[Any, Sequence[Repair]]:
    if plan is not None and not isinstance(plan, str):
        return plan, ()
    written_json = read_written_json(text if plan is None else plan)
    return written_json.value, written_json.repairs


def _with_decoded_fields(answer: Mapping[str, Any]) -> tuple[dict[str, Any], list[Repair]]:
    """Return an answer with JSON strings in its fields decoded, and the repairs.

    In strict mode (`dagwright.llm.strict_schema`), models write objects with arbitrary keys as such strings. In an
    answer that fits the format, the strings are already decoded.
    """
    decoded_answer, repairs = dict(answer), list[Repair]()
    if isinstance(intents := answer.get("intents"), list):
        decoded_answer["intents"] = [
            _with_decoded_groups(intent) if isinstance(intent, dict) else intent for intent in intents
        ]
    confidence = answer.get("confidence")
    if (
        isinstance(confidence, str)
        and isinstance(decoded_number := _decode_json_text(confidence), int | float)
        and not isinstance(decoded_number, bool)
    ):
        decoded_answer["confidence"] = decoded_number
        repairs.append(
            Repair("number_as_text", f"the confidence {confidence!r:.40} was read as a number", None, "/confidence")
        )
    return decoded_answer, repairs


def _with_decoded_groups(intent: Mapping[str, Any]) -> dict[str, Any]:
    decoded_intent = dict(intent)
    for name in _ARGUMENT_GROUPS:
        if isinstance(text := intent.get(name), str) and isinstance(group := _decode_json_text(text), dict | None):
            decoded_intent[name] = group
    return decoded_intent


def _decode_json_text(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _plan_without_nodes(answer: Mapping[str, Any]) -> ParsedPlan:
    """Return a plan without nodes for an answer that explains why there is nothing to do.

    Raises:
        PlanInvalid: the explanation is missing.
    """
    explanation = answer.get("explanation")
    problems = [*_answer_problems(answer)]
    if not isinstance(explanation, str) or not explanation.strip():
        hint = "write the intents, or give the reason in explanation"
        problems.append(Problem("empty_plan", "there are no intents and no explanation", "/intents", hint=hint))
    if problems:
        raise PlanInvalid(problems)
    return ParsedPlan(
        PlannedNodes((), {}),
        answer,
        f"{_explanation_text(answer)}\n{NOTHING_TO_DO}",
        model_fields=_explanation_fields(answer),
    )


def _answer_problems(answer: Any) -> Iterator[Problem]:
    """Yield problems of the confidence and the number of intents, which the dialect does not check."""
    if not isinstance(answer, Mapping):
        return
    confidence = _confidence(answer)
    if confidence is not None and not 0 <= confidence <= 1:
        message = f"'confidence' must be a number from 0 to 1, not {confidence!r:.40}"
        yield Problem("invalid_field", message, "/confidence")
    intents = answer.get("intents")
    if isinstance(intents, list) and len(intents) > MAX_INTENTS:
        message = f"there are {len(intents):,} intents; at most {MAX_INTENTS} are allowed"
        yield Problem(
            "too_large", message, "/intents", hint="write the first intents, and list the omitted work in explanation"
        )


def _compensating_call_problems(
    document: Document, tools: Mapping[str, ToolDeclaration], verbs: Mapping[str, ToolDeclaration]
) -> Iterator[Problem]:
    """Yield a problem for each intent that calls a compensating tool."""
    for index, node in enumerate(document.plan["nodes"]):
        if (name := node.get("tool")) in tools and name not in verbs:
            message = f"{name!r} is not a verb: it only compensates other calls"
            yield Problem("unknown_tool", message, pointer("intents", index, "verb"), node["id"])


def _entity_problems(answer: Any, document: Document, verbs: Mapping[str, ToolDeclaration]) -> Iterator[Problem]:
    """Yield a problem for each entity in `params`: a model does not know entity ids, so it invented the value."""
    for index, (intent, node) in enumerate(zip(answer["intents"], document.plan["nodes"], strict=True)):
        verb = verbs.get(node.get("tool") or "")
        params = intent.get("params") if verb is not None and isinstance(intent, dict) else None
        for key, value in params.items() if isinstance(params, dict) else ():
            is_bound = (index, key) in document.bindings
            if value is not None and not is_bound and verb is not None and accepted_kinds(verb, key):
                message = f"intent {index + 1}: {key!r} is an entity, not a plain value"
                hint = "write a lookup if the entity exists; otherwise write a ref to the intent that makes it"
                at = pointer("intents", index, "params", key)
                yield Problem("invalid_arguments", message, at, node["id"], hint)


def _with_hint_for_model(problem: Problem, context: Mapping[str, Any]) -> Problem:
    """Replace a hint for people with a hint that a model can follow."""
    if problem.code != "missing_context":
        return problem
    names = ", ".join(f"@{name}" for name in context)
    session_text = f"the session has {names}" if names else "the session has no names"
    return replace(problem, hint=f"{session_text}; use lookups for existing entities")


def _with_repaired_verbs(answer: Any, document: Document) -> dict[str, Any]:
    """Return the answer with the repaired verb names and no other change."""
    intents = [
        {**intent, "verb": node["tool"]} for intent, node in zip(answer["intents"], document.plan["nodes"], strict=True)
    ]
    return {**answer, "intents": intents}


def _explanation_fields(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return explanation and confidence of an answer; a missing confidence counts as 0."""
    return {"explanation": answer.get("explanation") or "", "confidence": _confidence(answer) or 0}


def _confidence(answer: Mapping[str, Any]) -> float | None:
    confidence = answer.get("confidence")
    return confidence if isinstance(confidence, int | float) and not isinstance(confidence, bool) else None


# Text for a person who approves the plan.


def _summary(answer: Mapping[str, Any], checked_plan: CheckedPlan) -> str:
    lines = [_explanation_text(answer), _lookups_text(checked_plan.lookups), _order_text(checked_plan.levels)]
    return "\n".join(filter(None, lines))


def _explanation_text(answer: Mapping[str, Any]) -> str:
    confidence = _confidence(answer)
    confidence_text = "does not say how sure it is" if confidence is None else f"is {confidence:.0%} sure"
    explanation = escaped_line(str(answer.get("explanation") or "").strip(), limit=_EXPLANATION_CHARACTERS)
    return f"The model {confidence_text}" + (f": “{explanation}”" if explanation else ".")


def _lookups_text(lookups: Sequence[Lookup]) -> str:
    searched_lookups = [lookup for lookup in lookups if lookup.known_as is None]
    if not searched_lookups:
        return ""
    entries = [
        f"{escaped_line(lookup.search_text, limit=80)!r} ({lookup.entity_type})"
        for lookup in searched_lookups[:_MAX_LOOKUPS]
    ]
    omitted_count = len(searched_lookups) - len(entries)
    return f"Looked up first: {', '.join(entries)}" + (f", and {omitted_count} more" if omitted_count else "")


def _order_text(levels: Sequence[Sequence[str]]) -> str:
    message = " → ".join(", ".join(level) for level in levels)
    return f"Order: {escaped_line(message, limit=_MAX_ORDER_CHARACTERS)}"
