"""Resolution of the values of a condition: `Furniture` is `furniture` in the data."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dagwright_maritime.fields import MAX_VALUES
from dagwright_maritime.slots import Filter, ValueResult

_MAX_LISTED_VALUES = 10


@dataclass(frozen=True, slots=True)
class ValueMatch:
    """The values of a condition with their possible meanings.

    Args:
        matches: for each value that was looked up, the matching values of the data.
        known_values: values of the field, the most frequent first.
    """

    condition: Filter
    matches: Sequence[tuple[str, Sequence[str]]]
    known_values: Sequence[str]

    def problem(self) -> str | None:
        """Return the ambiguous and unknown values, for the user; `None` if all are clear."""
        return "; ".join(self._problems()) or None

    def _problems(self) -> Iterator[str]:
        field = self.condition.field
        for text, values in self.matches:
            if len(values) > 1:
                yield f"{text!r} of {field} may be {' or '.join(values[:_MAX_LISTED_VALUES])}"
            elif not values:
                listed_values = ", ".join(self.known_values[:_MAX_LISTED_VALUES]) or "nothing"
                yield f"{field} has no value {text!r}; it has {listed_values}"

    def resolved_condition(self) -> Filter:
        """Return the condition with the resolved values in the spelling of the data."""
        if not self.matches:
            return self.condition
        filter_values = [values[0] if len(values) == 1 else text for text, values in self.matches]
        return self.condition.model_copy(
            update={"value": filter_values if self.condition.op == "in" else filter_values[0]}
        )

    def results(self) -> list[ValueResult]:
        """Return all possible values."""
        field = self.condition.field
        return [
            ValueResult(text=text, field=field, value=value, score=1.0 if len(values) == 1 else 0.5)
            for text, values in self.matches
            for value in values[:_MAX_LISTED_VALUES]
        ]


def match_values(condition: Filter, known_values: Sequence[str] | None) -> ValueMatch:
    """Return the possible meanings of the values of a condition.

    Args:
        known_values: values of the field, the most frequent first, at most `MAX_VALUES`; `None` if the field is
            not a keyword field.
    """
    if known_values is None or condition.value is None:
        return ValueMatch(condition, (), ())
    texts = condition.value if condition.op == "in" else [condition.value]
    return ValueMatch(
        condition, [(text, _matching_values(text, known_values)) for text in map(str, texts)], known_values
    )


def _matching_values(text: str, known_values: Sequence[str]) -> list[str]:
    searched_text = _normalize(text)
    equal_values = [value for value in known_values if _normalize(value) == searched_text]
    matches = equal_values or [
        value for value in known_values if searched_text in _normalize(value) or _normalize(value) in searched_text
    ]
    # A field with more values than were read contains names or identifiers, so the value is used as written.
    return matches or ([text] if len(known_values) >= MAX_VALUES else [])


def _normalize(text: str) -> str:
    return " ".join(text.casefold().replace("_", " ").replace("-", " ").split())
