"""The worker that finds out what a question is about: which names, values, fields and days, as the data know them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dagwright.tools import SubGoal, WorkerResult, worker_tool
from dagwright_maritime.asking import checked_question, data_lines, usable_answer
from dagwright_maritime.connection import SERVER_ATTEMPTS, Search, reach_search
from dagwright_maritime.fields import IndexFields, read_fields, values_of
from dagwright_maritime.metadata_prompt import TASK, answer_schema
from dagwright_maritime.name_finding import Name, NameMatch, find_name
from dagwright_maritime.question_reading import KIND_FIELDS, Mention, ReadQuestion, read_answer, with_names
from dagwright_maritime.slots import Entity, Filter, MetadataResults, ValueResult
from dagwright_maritime.value_finding import ValueMatch, match_values

_VALUES_TOLD = 20


@worker_tool(
    preconditions=[
        "the question names shippers, carriers, ports, fields, values or dates of shipments that have to be looked up",
        "it is about shipments in the data; for what a word means in general there is common_helpdesk",
    ],
    outputs=["metadata_results", "value_results", "analysis_result"],
    goal_type="support",
    timeout="5m",
    max_attempts=SERVER_ATTEMPTS,
    asks_models=True,
)
async def metadata_lookup(sub_goal: SubGoal, question: str = "") -> WorkerResult:
    """Looks up what a question about shipments means in the data: names, fields, values, figures and days.

    Several things to compare may be one question or one call each. If a name may mean several or none, the result is
    partial, without an analysis_result, and the message names what comes near.

    Args:
        question: the part of the question that is looked up, in the user's words; the description of the sub-goal if
            it is left out
    """
    asked = checked_question(question or sub_goal.description)
    async with reach_search() as search:
        fields = await read_fields(search, search.indices.shipments)
        told = data_lines("Question", [{"question": asked}])
        known = data_lines("Fields", (field.told() for field in fields.by_name.values()))
        read = await usable_answer(
            TASK,
            f"{told}\n\n{known}",
            schema=answer_schema(fields),
            read=lambda answer: read_answer(answer, asked, fields),
        )
        names = [await find_name(search, each.text, kind=each.kind) for each in read.mentions]
        values = await _values(search, read, fields)
    return _result(read, fields, names, values)


async def _values(search: Search, read: ReadQuestion, fields: IndexFields) -> list[ValueMatch]:
    """Returns what the data have for the values of each condition; nothing is looked up but in fields of words."""
    conditions = read.analysis.filters
    of_words = [each.field for each in conditions if fields.by_name[each.field].type == "keyword" and each.value]
    known = await values_of(search, fields.index, list(dict.fromkeys(of_words)))
    return [match_values(each, known.get(each.field)) for each in conditions]


def _result(
    read: ReadQuestion, fields: IndexFields, names: Sequence[NameMatch], values: Sequence[ValueMatch]
) -> WorkerResult:
    places = [_place(mention, match) for mention, match in zip(read.mentions, names, strict=True)]
    problems = [*_problems(names), *_problems(values)]
    found = _Found(read.mentions, names, places)
    whole = with_names(_with_values(read, values), filters=found.filters(), entities=found.entities())
    metadata = MetadataResults(
        index=fields.index, fields=[fields.by_name[name].description_slot() for name in whole.named_fields]
    )
    told = [*found.values(), *(value for match in values for value in match.told())]
    outputs: dict[str, Any] = {
        "metadata_results": metadata.model_dump(),
        "value_results": [each.model_dump() for each in told],
        "analysis_result": None if problems else whole.analysis.model_dump(),
    }
    if not problems:
        return WorkerResult(outputs=outputs, message=_notes(names) or None)
    message = "; ".join(problems)
    if told:
        return WorkerResult(status="partial", outputs=outputs, message=message)
    return WorkerResult(status="failed", error=message, message="Look it up under another name, or ask the user")


def _problems(matches: Sequence[NameMatch] | Sequence[ValueMatch]) -> Iterator[str]:
    for match in matches:
        if (problem := match.problem()) is not None:
            yield problem


def _notes(names: Sequence[NameMatch]) -> str:
    """Returns which names were taken for what they are not called."""
    taken = [f"{match.text!r} is taken for {match.meant[0].name}" for match in names if match.meant[0].score < 1]
    return "; ".join(taken)


def _place(mention: Mention, match: NameMatch) -> str | None:
    """Returns the field in which a name is meant, for what it has turned out to be."""
    names = match.meant or match.near
    fitting = KIND_FIELDS[names[0].kind] if names else ()
    return mention.field if mention.field in fitting else next(iter(fitting), None)


@dataclass(frozen=True, slots=True)
class _Found:
    """The names of a question with what they mean, and the fields in which they are meant."""

    mentions: Sequence[Mention]
    names: Sequence[NameMatch]
    places: Sequence[str | None]

    def values(self) -> list[ValueResult]:
        """Returns what each name may mean, the clear ones and the others."""
        return [
            ValueResult(text=match.text, field=field, value=name.name, kind=name.kind, score=round(name.score, 3))
            for match, field in zip(self.names, self.places, strict=True)
            if field is not None
            for name in (match.meant or match.near)[:_VALUES_TOLD]
        ]

    def clear(self) -> list[tuple[str, str, Name]]:
        """Returns the text, the field and the meaning of each name that is clear."""
        return [
            (match.text, field, match.meant[0])
            for match, field in zip(self.names, self.places, strict=True)
            if match.is_clear and field is not None
        ]

    def entities(self) -> list[Entity]:
        return [Entity(text=text, kind=name.kind, field=field, value=name.name) for text, field, name in self.clear()]

    def filters(self) -> list[Filter]:
        """Returns the conditions that the names are: several in one field mean any of them."""
        by_field: dict[str, list[str]] = {}
        for _, field, name in self.clear():
            by_field.setdefault(field, []).append(name.name)
        return [_is_any_of(field, list(dict.fromkeys(names))) for field, names in by_field.items()]


def _is_any_of(field: str, values: list[str]) -> Filter:
    return (
        Filter(field=field, op="is", value=values[0])
        if len(values) == 1
        else Filter(field=field, op="in", value=values)
    )


def _with_values(read: ReadQuestion, values: Sequence[ValueMatch]) -> ReadQuestion:
    """Returns the question with the values of its conditions as the data write them."""
    filters = [match.filter() for match in values]
    return ReadQuestion(read.mentions, read.analysis.model_copy(update={"filters": filters}), read.named_fields)
