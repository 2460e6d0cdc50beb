"""Find the shippers, carriers and ports that a name in a question may mean.

The search server returns candidates; this module ranks them, so that it can report why a name is unclear. A whole name,
a whole alias or a code is unambiguous. A partial name matches all names that contain each of its words, with any
company form.
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dagwright_maritime.connection import Search
from dagwright_maritime.fields import find_documents
from dagwright_maritime.search.limits import TEXT_CHARACTERS

_MAX_CANDIDATES = 30
MAX_SIMILAR_NAMES = 5
"""Maximum number of similar names that are listed for an unknown name."""

_EXACT, _WHOLE_WORDS, _SIMILAR_WORDS, _NO_MATCH = 1.0, 0.8, 0.6, 0.3
"""Scores of candidates: same words, all words contained, similar words, other words."""
_WORDS = re.compile(r"[^\W_]+")
_COMPANY_FORMS = frozenset(
    {
        "ag", "bv", "co", "company", "corp", "corporation", "fze", "gmbh", "group", "inc", "incorporated", "jsc", "kk",
        "limited", "line", "lines", "llc", "llp", "lp", "ltd", "nv", "of", "ou", "plc", "port", "pte", "pty", "pvt",
        "sa", "sl", "spa", "the",
    }
)  # fmt: skip
"""Words of company names that people add, omit or confuse."""


@dataclass(frozen=True, slots=True)
class NameCandidate:
    """A company or port that a name may mean.

    Args:
        score: 1 for a whole name, alias or code; lower for a part of a name; lowest for a similar name.
    """

    kind: str
    name: str
    code: str
    score: float = 0.0


@dataclass(frozen=True, slots=True)
class NameMatch:
    """The possible meanings of a name in a question.

    Args:
        meanings: all possible meanings, best first; a clear name has one meaning, an unknown name has no meaning.
        similar_names: similar names, if the name has no meaning.
    """

    text: str
    meanings: Sequence[NameCandidate]
    similar_names: Sequence[NameCandidate] = ()

    @property
    def is_clear(self) -> bool:
        """Whether the name has exactly one meaning."""
        return len(self.meanings) == 1

    def problem(self) -> str | None:
        """Return why the name is not clear, for the user; `None` if the name is clear."""
        if self.is_clear:
            return None
        if self.meanings:
            kinds = list(dict.fromkeys(name.kind for name in self.meanings))
            noun = f"{kinds[0]}s" if len(kinds) == 1 else "names"
            return f"{self.text!r} may be one of {len(self.meanings)} {noun}: {', '.join(_labels_of(self.meanings))}"
        suggestion = f"; similar names: {', '.join(_labels_of(self.similar_names))}" if self.similar_names else ""
        return f"no shipper, carrier or port is called {self.text!r}{suggestion}"


def _labels_of(names: Sequence[NameCandidate]) -> list[str]:
    is_mixed = len({name.kind for name in names}) > 1
    return [f"{name.name} ({name.kind})" if is_mixed else name.name for name in names]


async def find_name(search: Search, text: str, *, kind: str = "") -> NameMatch:
    """Return the possible meanings of a name.

    Args:
        kind: the expected kind, if known: `shipper`, `carrier` or `port`; names of other kinds are also found.

    Raises:
        GiveUp: the index of names does not exist.
        RetryLater: the server is unavailable.
    """
    fields, text = ["name.text", "aliases.text"], text[:TEXT_CHARACTERS]
    queries = [
        {"multi_match": {"query": text, "fields": ["name.folded^20"]}},
        {"multi_match": {"query": text, "fields": ["aliases.folded^20"]}},
        {"multi_match": {"query": text.upper(), "fields": ["code^20"]}},
        {"multi_match": {"query": text, "fields": fields, "fuzziness": "AUTO"}},
        {"multi_match": {"query": text, "fields": fields, "type": "bool_prefix"}},
    ]
    body = {"size": _MAX_CANDIDATES, "query": {"bool": {"should": queries, "minimum_should_match": 1}}}
    return rank_candidates(text, await find_documents(search, search.indices.names, body), kind=kind)


def rank_candidates(text: str, candidates: Iterable[Mapping[str, Any]], *, kind: str = "") -> NameMatch:
    """Return the possible meanings of a name.

    Args:
        candidates: documents of the index of names, best first.
        kind: preferred kind; ignored if no meaning is of this kind.
    """
    scored_candidates = [(_candidate_score(text, candidate), candidate) for candidate in candidates]
    names = [
        NameCandidate(document["kind"], document["name"], document["code"], score)
        for score, document in scored_candidates
    ]
    best_score = max((name.score for name in names), default=0.0)
    if best_score == _EXACT:
        matches = [name for name in names if name.score == _EXACT]
    else:
        matches = sorted((name for name in names if name.score > _NO_MATCH), key=lambda name: -name.score)
    matches_of_kind = [name for name in matches if name.kind == kind]
    meanings = matches_of_kind or matches
    return NameMatch(text, meanings, () if meanings else names[:MAX_SIMILAR_NAMES])


def _candidate_score(text: str, document: Mapping[str, Any]) -> float:
    names = [document["name"], *document.get("aliases", ())]
    if text.strip().upper() == document["code"]:
        return _EXACT
    return max(_words_score(_words(text), _words(name)) for name in names)


def _words_score(searched_words: Sequence[str], name_words: Sequence[str]) -> float:
    if searched_words == name_words:
        return _EXACT
    significant_words = [word for word in searched_words if word not in _COMPANY_FORMS]
    if not significant_words:
        return _NO_MATCH
    if all(any(_is_prefix(word, name_word) for name_word in name_words) for word in significant_words):
        # With "Corp" in the text, names with this word are preferred, but other names are not excluded.
        return _WHOLE_WORDS + 0.1 * sum(word in name_words for word in searched_words) / len(searched_words)
    return (
        _SIMILAR_WORDS
        if all(any(_is_similar(word, name_word) for name_word in name_words) for word in significant_words)
        else _NO_MATCH
    )


def _words(text: str) -> list[str]:
    unaccented_text = "".join(
        character for character in unicodedata.normalize("NFKD", text) if not unicodedata.combining(character)
    )
    # "L.A." is one word.
    return _WORDS.findall(re.sub(r"(?<=\b\w)\.(?=\w\b|\s|$)", "", unaccented_text.casefold()))


def _is_prefix(word: str, name_word: str) -> bool:
    return name_word == word or (len(word) > 2 and name_word.startswith(word))


def _is_similar(word: str, name_word: str) -> bool:
    if _is_prefix(word, name_word):
        return True
    max_distance = 0 if len(word) < 4 else 1 if len(word) < 8 else 2
    return (
        max_distance > 0
        and abs(len(word) - len(name_word)) <= max_distance
        and _distance(word, name_word) <= max_distance
    )


def _distance(first: str, second: str) -> int:
    """Return the edit distance: insertions, deletions, changes and swaps of characters."""
    older_row: list[int] = []
    row = list(range(len(second) + 1))
    for i, first_character in enumerate(first, 1):
        previous_row, row_before_previous, row = row, older_row, [i]
        for j, second_character in enumerate(second, 1):
            cost = min(previous_row[j] + 1, row[j - 1] + 1, previous_row[j - 1] + (first_character != second_character))
            if i > 1 and j > 1 and first_character == second[j - 2] and first[i - 2] == second_character:
                cost = min(cost, row_before_previous[j - 2] + 1)
            row.append(cost)
        older_row = previous_row
    return row[-1]
