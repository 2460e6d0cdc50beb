"""Fetching the few names among a million that a rule of `lookup` can mean; the rules rank them.

Names are found by their words: FTS5 on SQLite, an index of lexemes on PostgreSQL. What is misspelt is first put
right by the list of all words, which is a tenth as long, and has an index of trigrams on both. This module must not
know the rules and must not import Temporal.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import text
from sqlalchemy.orm import Session

from dagwright_onboarding.search_index import core_of, party_tags
from dagwright_onboarding.spelling import (
    Spellings,
    divided_otherwise,
    fewer_words,
    likely,
    likeness_of,
    one_edit_away,
    trigrams,
)

_NAMES_WEIGHED = 1_000
"""Names that are put in order for one search; of a text that more names have, the best of so many are told."""
NAMES_TOLD = 200
"""Names that a search gets; ten parties are shown, and some have several names."""
_NEAR_NAMES = 500
"""Names whose spelling is compared for one combination of words."""
_NEAR_TOLD = 50
"""Of these the most alike; ten parties are shown, and some have several names or are not what is wanted."""
_TRIGRAM = 3
_ALIKE_WORDS = 100
"""Words whose spelling is compared; those that share the most trigrams."""
_ALIKE_POSTINGS = 10_000
"""Entries of the index of trigrams that SQLite counts: the rarest trigrams are taken up to this sum."""
_ALIKE_SIMILARITY = "0.2"
"""Share of trigrams in common from which PostgreSQL gives a word; the threshold is its own option."""
_LONG_WORD = 5
"""Letters from which a word that no name has is compared by trigrams too; shorter ones have too few."""
_WORDS_CORRECTED = 12
"""Words of a text whose spelling is put right; the others have to be as they are."""

Wanted = Sequence[Spellings]
"""What a name has to have: of each of these at least one word."""


@dataclass(frozen=True, slots=True)
class KnownName:
    """One name of one party; `name` is the party's own, `words` and `core` are of the name found, in its order."""

    id: str
    name: str
    kind: str
    jurisdiction: str
    use: str
    words: tuple[str, ...]
    core: tuple[str, ...]


class NameIndex:
    """Fetches names from one view of the store; all results are limited, the shortest names first.

    Args:
        kinds: of the parties, None for any.
        jurisdiction: ISO 3166 code of the parties or of a country around them, None for any.
    """

    def __init__(self, session: Session, *, kinds: Sequence[str] | None, jurisdiction: str | None = None) -> None:
        self._session = session
        self._kinds = kinds
        self._jurisdiction = jurisdiction
        self._is_sqlite = session.get_bind().dialect.name == "sqlite"
        # Of `US-DE`, the first tag is of all of the country.
        tagged = [party_tags(kind, jurisdiction or "") for kind in kinds or [""]]
        each = [[tag for tag in (tags[0], tags[-1]) if tag != "#"] for tags in tagged]
        # Those that the parties of one kind have all, of each kind.
        self._tags = [tags for tags in each if tags]

    def whole(self, words: Sequence[str], core: Sequence[str]) -> list[KnownName]:
        """Returns the names that consist of these words, in any order, or of the core with or without a legal form."""
        query = "SELECT * FROM party_search WHERE core IN (:words, :core)"
        return self._fetch(query, {"words": core_of(words), "core": core_of(core)})

    def all_words(self, words: Sequence[str]) -> list[KnownName]:
        """Returns the names that have all these words, in any order."""
        return self._having(self._expression([[[word] for word in dict.fromkeys(words)]]))

    def beginnings(self, beginnings: Sequence[str]) -> list[KnownName]:
        """Returns the names with words that begin like these, in this order."""
        if not self._begin_words(beginnings):
            return []
        each = [self._beginning(beginning) for beginning in dict.fromkeys(beginnings)]
        pattern = "%" + "".join(f" {_escaped(beginning)}%" for beginning in beginnings)
        return self._having(self._all(each), in_order=pattern)

    def near(self, words: Sequence[str], *, likeness: float) -> Iterator[list[KnownName]]:
        """Yields names that have words spelt like these and are as alike as wanted, ever fewer of the words.

        Args:
            words: of a text, legal form aside.
            likeness: rapidfuzz ratio, 0 to 100, that a name has to reach to be of use.
        """
        spellings = self._spellings(words)
        if otherwise := self._known_divisions(words):
            yield self._alike_among(otherwise, words, likeness=likeness)
        if all(spellings.values()):
            yield self._alike_among([[spellings[word] for word in spellings]], words, likeness=likeness)
        for combinations in fewer_words(words, likeness=likeness):
            wanted = [[spellings[words[at]] for at in positions] for positions in combinations]
            wanted = [found for found in wanted if all(found)]
            if wanted:
                yield self._alike_among(wanted, words, likeness=likeness)

    def _alike_among(self, alternatives: Sequence[Wanted], words: Sequence[str], *, likeness: float) -> list[KnownName]:
        """Returns the most alike of the names that have one of the alternatives."""
        # Of hundreds of names few are alike: only of these the parties are read.
        rated = [(likeness_of(words, core), name_id) for name_id, core in self._cores(self._expression(alternatives))]
        best = sorted((-rating, name_id) for rating, name_id in rated if rating >= likeness)[:_NEAR_TOLD]
        if not best:
            return []
        ids = [name_id for _, name_id in best]
        if self._is_sqlite:
            query = "SELECT * FROM party_search WHERE id IN (SELECT value FROM json_each(:ids))"
            return self._fetch(query, {"ids": json.dumps(ids)})
        return self._fetch("SELECT * FROM party_search WHERE id = ANY(:ids)", {"ids": ids})

    def _cores(self, expression: str) -> list[tuple[int, tuple[str, ...]]]:
        """Returns (`PartySearch.id`, `KnownName.core`) of names, of the wanted kind before all if there are many."""
        # To look for the kind too takes longer than to read names of others, unless there are many.
        for match in (expression, self._tagged(expression)) if self._tags else (expression,):
            query = f"SELECT s.id, s.tokens, s.core {self._matching()} LIMIT {_NEAR_NAMES}"
            rows = self._session.execute(text(query), {"match": match})
            found = [(name_id, _core(tokens, core)) for name_id, tokens, core in rows]
            if len(found) < _NEAR_NAMES:
                break
        return found

    def _begin_words(self, beginnings: Sequence[str]) -> bool:
        """Tells whether each of these may begin a word; to find none among the names takes far longer."""
        if self._is_sqlite:
            query = (
                "SELECT count(*) FROM json_each(:beginnings) b WHERE NOT EXISTS"
                " (SELECT 1 FROM search_word w WHERE w.word >= b.value AND w.word < b.value || char(1114111))"
            )
            return not self._session.scalar(text(query), {"beginnings": json.dumps([*beginnings])})
        # Of shorter ones the index of trigrams knows nothing; an underscore stands for any letter here.
        long = [f"{beginning}%" for beginning in beginnings if len(beginning) >= _TRIGRAM]
        query = (
            "SELECT count(*) FROM unnest(CAST(:patterns AS text[])) b(pattern) WHERE NOT EXISTS"
            " (SELECT 1 FROM search_word w WHERE lower(w.word) LIKE b.pattern)"
        )
        return not self._session.scalar(text(query), {"patterns": long})

    def _spellings(self, words: Sequence[str]) -> dict[str, Spellings]:
        """Returns for each word the words of names that it may stand for, the likeliest first."""
        corrected = sorted(set(words), key=lambda word: (-len(word), word))[:_WORDS_CORRECTED]
        edits = {word: one_edit_away(word) for word in corrected}
        known = self._known({*words, *(edit for each in edits.values() for edit in each)})
        found: dict[str, Spellings] = {}
        for word in dict.fromkeys(words):
            meant = known & ({word} | edits.get(word, set()))
            if word in edits and word not in known and len(word) >= _LONG_WORD:
                meant |= set(self._alike(word))
            found[word] = likely(word, meant)
        return found

    def _known_divisions(self, words: Sequence[str]) -> list[Wanted]:
        divisions = divided_otherwise(words[:_WORDS_CORRECTED])
        known = self._known({word for division in divisions for word in division})
        return [[[word] for word in division] for division in divisions if known.issuperset(division)]

    def _known(self, words: set[str]) -> set[str]:
        # One value and not thousands: to write so many into a statement takes longer than to look them up.
        asked = sorted(words)
        if self._is_sqlite:
            query = "SELECT word FROM search_word WHERE word IN (SELECT value FROM json_each(:words))"
            return set(self._session.scalars(text(query), {"words": json.dumps(asked)}))
        return set(
            self._session.scalars(text("SELECT word FROM search_word WHERE word = ANY(:words)"), {"words": asked})
        )

    def _alike(self, word: str) -> list[str]:
        """Returns the words that share the most trigrams with a word."""
        if not self._is_sqlite:
            self._session.execute(
                text("SELECT set_config('pg_trgm.similarity_threshold', :share, true)"), {"share": _ALIKE_SIMILARITY}
            )
            query = (
                "SELECT word FROM search_word WHERE lower(word) % :word"
                " ORDER BY similarity(word, :word) DESC, word LIMIT :n"
            )
            return list(self._session.scalars(text(query), {"word": word, "n": _ALIKE_WORDS}))
        rare = self._rare(trigrams(word))
        if not rare:
            return []
        each = " UNION ALL ".join(
            f"SELECT rowid AS id FROM word_trigrams WHERE word_trigrams MATCH :trigram{number}"
            for number in range(len(rare))
        )
        query = (
            f"SELECT w.word FROM (SELECT id, count(*) AS shared FROM ({each}) GROUP BY id ORDER BY shared DESC, id"
            " LIMIT :n) g CROSS JOIN search_word w ON w.id = g.id"
        )
        matches = {f"trigram{number}": _quoted(trigram) for number, trigram in enumerate(rare)}
        return list(self._session.scalars(text(query), {**matches, "n": _ALIKE_WORDS}))

    def _rare(self, found: Sequence[str]) -> list[str]:
        """Returns the trigrams that the fewest words have, as many as can be counted at once; at least one."""
        counts = text("SELECT doc FROM word_trigram_counts WHERE term = :term")
        counted = sorted(
            (count, trigram)
            for trigram in found
            if (count := self._session.execute(counts, {"term": trigram}).scalar())
        )
        kept: list[str] = []
        total = 0
        for count, trigram in counted:
            total += count
            if kept and total > _ALIKE_POSTINGS:
                break
            kept.append(trigram)
        return kept

    def _expression(self, alternatives: Sequence[Wanted]) -> str:
        """Returns what matches names that have one of the alternatives, in the language of the index."""
        return self._any(
            self._all(self._any(map(_quote_for(self._is_sqlite), one)) for one in wanted) for wanted in alternatives
        )

    def _any(self, expressions: Iterable[str]) -> str:
        return f"({(' OR ' if self._is_sqlite else ' | ').join(expressions)})"

    def _all(self, expressions: Iterable[str]) -> str:
        return f"({(' AND ' if self._is_sqlite else ' & ').join(expressions)})"

    def _beginning(self, word: str) -> str:
        return f"{_quoted(word)} *" if self._is_sqlite else f"{_lexeme(word)}:*"

    def _having(self, expression: str, *, in_order: str | None = None) -> list[KnownName]:
        query = f"SELECT s.* {self._matching()}"
        values: dict[str, Any] = {"match": self._tagged(expression)}
        if in_order is not None:
            query += r" AND ' ' || s.tokens LIKE :in_order ESCAPE '\'"
            values["in_order"] = in_order
        return self._fetch(f"{query} LIMIT {_NAMES_WEIGHED}", values)

    def _tagged(self, expression: str) -> str:
        """Returns what matches the names of an expression whose parties are what is wanted."""
        if not self._tags:
            return self._all([expression])
        quoted = _quote_for(self._is_sqlite)
        return self._all([expression, self._any(self._all(map(quoted, tags)) for tags in self._tags)])

    def _matching(self) -> str:
        """Returns the part of a query that finds the names `s` that `:match` matches."""
        if self._is_sqlite:
            return "FROM party_words g CROSS JOIN party_search s ON s.id = g.rowid WHERE g.party_words MATCH :match"
        return "FROM party_search s WHERE array_to_tsvector(string_to_array(s.tokens, ' ')) @@ CAST(:match AS tsquery)"

    def _fetch(self, names: str, values: dict[str, Any]) -> list[KnownName]:
        conditions = ["p.status = 'active'"]
        if self._kinds is not None:
            names_of = {f"kind{number}": kind for number, kind in enumerate(self._kinds)}
            conditions.append(f"p.kind IN ({', '.join(f':{name}' for name in names_of)})")
            values = {**values, **names_of}
        if self._jurisdiction is not None:
            # As `is_within`; a code holds no sign that means something to LIKE.
            conditions.append("(p.jurisdiction = :jurisdiction OR p.jurisdiction LIKE :divisions)")
            values = {**values, "jurisdiction": self._jurisdiction, "divisions": f"{self._jurisdiction}-%"}
        query = (
            f"WITH s AS MATERIALIZED ({names}) SELECT p.id, p.name, p.kind, p.jurisdiction, s.use, s.tokens, s.core"
            f" FROM s JOIN party p ON p.id = s.party_id WHERE {' AND '.join(conditions)}"
            f" ORDER BY s.word_count, p.name, p.jurisdiction, p.id LIMIT {NAMES_TOLD}"
        )
        return [
            KnownName(id_, name, kind, jurisdiction, use, words=_words(tokens), core=_core(tokens, core))
            for id_, name, kind, jurisdiction, use, tokens, core in self._session.execute(text(query), values)
        ]


def is_within(jurisdiction: str, wider: str) -> bool:
    """Returns whether one ISO 3166 code is the other or one of its divisions: `US-DE` is within `US`."""
    return jurisdiction == wider or jurisdiction.startswith(f"{wider}-")


def _words(tokens: str) -> tuple[str, ...]:
    return tuple(token for token in tokens.split() if not token.startswith("#"))


def _core(tokens: str, core: str) -> tuple[str, ...]:
    """Returns the words of a core as the name has them: those before its legal form."""
    return tuple(tokens.split()[: len(core.split())])


def _quote_for(is_sqlite: bool) -> Callable[[str], str]:
    return _quoted if is_sqlite else _lexeme


def _quoted(token: str) -> str:
    """Returns a token as FTS5 reads it; words hold no quotation mark."""
    return f'"{token}"'


def _lexeme(token: str) -> str:
    """Returns a token as PostgreSQL reads it in a query; words hold no quotation mark and no backslash."""
    return f"'{token}'"


def _escaped(word: str) -> str:
    """Returns a word for LIKE; of its signs only the underscore can stand in a word."""
    return word.replace("_", r"\_")
