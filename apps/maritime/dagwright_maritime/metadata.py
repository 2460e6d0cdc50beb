"""The worker tool that looks up the names, values, fields and days of a question in the data."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dagwright.tools import SubGoal, WorkerResult, worker_tool
from dagwright_maritime.connection import SERVER_ATTEMPTS, Search, connect_search
from dagwright_maritime.fields import IndexFields, read_fields, read_values
from dagwright_maritime.metadata_prompt import TASK, answer_schema
from dagwright_maritime.model_answers import data_lines, request_answer, validate_question
from dagwright_maritime.name_finding import NameCandidate, NameMatch, find_name
from dagwright_maritime.question_parsing import KIND_FIELDS, Mention, ParsedQuestion, apply_resolved_names, parse_answer
from dagwright_maritime.slots import Entity, Filter, MetadataResults, ValueResult
from dagwright_maritime.value_finding import ValueMatch, match_values

_MAX_VALUES = 20


@worker_tool(
    preconditions=[
        "the question names shippers, carriers, ports, fields, values or dates of shipments that must be looked up",
        "the question is about shipments in the data; for the meaning of a shipping term use common_helpdesk",
    ],
    outputs=["metadata_results", "value_results", "analysis_result"],
    goal_type="support",
    timeout="5m",
    max_attempts=SERVER_ATTEMPTS,
    uses_models=True,
)
async def metadata_lookup(sub_goal: SubGoal, question: str = "") -> WorkerResult:
    """Resolve a question about shipments in the data: its names, fields, values, figures and days.

    Items to compare can be looked up together, or each in a separate call. If a name is ambiguous or unknown, the
    result is partial, without an analysis_result, and the message lists the alternatives.

    Args:
        question: the part of the question to look up, in the user's words; defaults to the description of the sub-goal
    """
    text = validate_question(question or sub_goal.description)
    async with connect_search() as search:
        fields = await read_fields(search, search.indices.shipments)
        question_line = data_lines("Question", [{"question": text}])
        field_lines = data_lines("Fields", (field.prompt_entry() for field in fields.by_name.values()))
        parsed_question = await request_answer(
            TASK,
            f"{question_line}\n\n{field_lines}",
            schema=answer_schema(fields),
            parse=lambda answer: parse_answer(answer, text, fields),
        )
        name_matches = [
            await find_name(search, mention.text, kind=mention.kind) for mention in parsed_question.mentions
        ]
        value_matches = await _match_conditions(search, parsed_question, fields)
    return _result(parsed_question, fields, name_matches, value_matches)


async def _match_conditions(search: Search, parsed_question: ParsedQuestion, fields: IndexFields) -> list[ValueMatch]:
    """Return the values in the data for each condition; only values of keyword fields are looked up."""
    conditions = parsed_question.analysis.filters
    keyword_fields = [
        condition.field
        for condition in conditions
        if fields.by_name[condition.field].type == "keyword" and condition.value
    ]
    values_of_fields = await read_values(search, fields.index, list(dict.fromkeys(keyword_fields)))
    return [match_values(condition, values_of_fields.get(condition.field)) for condition in conditions]


def _result(
    parsed_question: ParsedQuestion,
    fields: IndexFields,
    name_matches: Sequence[NameMatch],
    value_matches: Sequence[ValueMatch],
) -> WorkerResult:
    fields_of_names = [
        _field_of_name(mention, match) for mention, match in zip(parsed_question.mentions, name_matches, strict=True)
    ]
    problems = [*_problems(name_matches), *_problems(value_matches)]
    resolved_names = _ResolvedNames(parsed_question.mentions, name_matches, fields_of_names)
    question = apply_resolved_names(
        _apply_values(parsed_question, value_matches),
        filters=resolved_names.filters(),
        entities=resolved_names.entities(),
    )
    metadata = MetadataResults(index=fields.index, fields=[fields.by_name[name].to_slot() for name in question.fields])
    results = [*resolved_names.values(), *(value for match in value_matches for value in match.results())]
    outputs: dict[str, Any] = {
        "metadata_results": metadata.model_dump(),
        "value_results": [result.model_dump() for result in results],
        "analysis_result": None if problems else question.analysis.model_dump(),
    }
    if not problems:
        return WorkerResult(outputs=outputs, message=_notes(name_matches) or None)
    message = "; ".join(problems)
    if results:
        return WorkerResult(status="partial", outputs=outputs, message=message)
    return WorkerResult(status="failed", error=message, message="Look up another name, or ask the user")


def _problems(matches: Sequence[NameMatch] | Sequence[ValueMatch]) -> Iterator[str]:
    for match in matches:
        if (problem := match.problem()) is not None:
            yield problem


def _notes(matches: Sequence[NameMatch]) -> str:
    """Return a note about the names that differ from their resolved names."""
    notes = [
        f"{match.text!r} is resolved to {match.meanings[0].name}" for match in matches if match.meanings[0].score < 1
    ]
    return "; ".join(notes)


def _field_of_name(mention: Mention, match: NameMatch) -> str | None:
    """Return the field of a name, according to its resolved kind."""
    names = match.meanings or match.similar_names
    fields_of_kind = KIND_FIELDS[names[0].kind] if names else ()
    return mention.field if mention.field in fields_of_kind else next(iter(fields_of_kind), None)


@dataclass(frozen=True, slots=True)
class _ResolvedNames:
    """The names of a question with their resolved values, and their fields."""

    mentions: Sequence[Mention]
    matches: Sequence[NameMatch]
    fields_of_names: Sequence[str | None]

    def values(self) -> list[ValueResult]:
        """Return the possible values of each name, resolved or ambiguous."""
        return [
            ValueResult(text=match.text, field=field, value=name.name, kind=name.kind, score=round(name.score, 3))
            for match, field in zip(self.matches, self.fields_of_names, strict=True)
            if field is not None
            for name in (match.meanings or match.similar_names)[:_MAX_VALUES]
        ]

    def resolved_matches(self) -> list[tuple[str, str, NameCandidate]]:
        """Return the text, field and value of each resolved name."""
        return [
            (match.text, field, match.meanings[0])
            for match, field in zip(self.matches, self.fields_of_names, strict=True)
            if match.is_clear and field is not None
        ]

    def entities(self) -> list[Entity]:
        return [
            Entity(text=text, kind=name.kind, field=field, value=name.name)
            for text, field, name in self.resolved_matches()
        ]

    def filters(self) -> list[Filter]:
        """Return the conditions for the names; several names in one field are alternatives."""
        by_field: dict[str, list[str]] = {}
        for _, field, name in self.resolved_matches():
            by_field.setdefault(field, []).append(name.name)
        return [_equality_filter(field, list(dict.fromkeys(names))) for field, names in by_field.items()]


def _equality_filter(field: str, values: list[str]) -> Filter:
    return (
        Filter(field=field, op="is", value=values[0])
        if len(values) == 1
        else Filter(field=field, op="in", value=values)
    )


def _apply_values(parsed_question: ParsedQuestion, matches: Sequence[ValueMatch]) -> ParsedQuestion:
    """Return the question with the values of its conditions in the spelling of the data."""
    filters = [match.resolved_condition() for match in matches]
    return ParsedQuestion(
        parsed_question.mentions,
        parsed_question.analysis.model_copy(update={"filters": filters}),
        parsed_question.fields,
    )
