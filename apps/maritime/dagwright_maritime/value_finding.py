"""Finds out which values of a field a condition means: `Furniture` is `furniture` in the data."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dagwright_maritime.fields import VALUES_READ
from dagwright_maritime.slots import Filter, ValueResult

_TOLD = 10


@dataclass(frozen=True, slots=True)
class ValueMatch:
    """The values that a condition names, and what each may mean.

    Args:
        meant: for each value that was looked up, the values of the data that it may mean.
        known: values of the field, the most frequent first.
    """

    condition: Filter
    meant: Sequence[tuple[str, Sequence[str]]]
    known: Sequence[str]

    def problem(self) -> str | None:
        """Returns what is not clear, for whoever asks; `None` if all is."""
        return "; ".join(self._problems()) or None

    def _problems(self) -> Iterator[str]:
        field = self.condition.field
        for text, found in self.meant:
            if len(found) > 1:
                yield f"{text!r} of {field} may be {' or '.join(found[:_TOLD])}"
            elif not found:
                known = ", ".join(self.known[:_TOLD]) or "nothing"
                yield f"{field} has no value {text!r}; it has {known}"

    def filter(self) -> Filter:
        """Returns the condition with the values that are clear as the data write them."""
        if not self.meant:
            return self.condition
        written = [found[0] if len(found) == 1 else text for text, found in self.meant]
        return self.condition.model_copy(update={"value": written if self.condition.op == "in" else written[0]})

    def told(self) -> list[ValueResult]:
        """Returns all that is meant or may be."""
        field = self.condition.field
        return [
            ValueResult(text=text, field=field, value=value, score=1.0 if len(found) == 1 else 0.5)
            for text, found in self.meant
            for value in found[:_TOLD]
        ]


def match_values(condition: Filter, known: Sequence[str] | None) -> ValueMatch:
    """Returns what the values of a condition mean.

    Args:
        known: values of its field, the most frequent first, at most `VALUES_READ`; `None` if it is not one of words.
    """
    if known is None or condition.value is None:
        return ValueMatch(condition, (), ())
    texts = condition.value if condition.op == "in" else [condition.value]
    return ValueMatch(condition, [(text, _meant(text, known)) for text in map(str, texts)], known)


def _meant(text: str, known: Sequence[str]) -> list[str]:
    asked = _plain(text)
    same = [value for value in known if _plain(value) == asked]
    near = same or [value for value in known if asked in _plain(value) or _plain(value) in asked]
    # A field with more values than were looked at has names of its own kind, such as identifiers.
    return near or ([text] if len(known) >= VALUES_READ else [])


def _plain(text: str) -> str:
    return " ".join(text.casefold().replace("_", " ").replace("-", " ").split())
