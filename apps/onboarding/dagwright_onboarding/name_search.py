"""Select candidate names for the search steps of `lookup`, which rank them.

Names are found by their words: with FTS5 on SQLite, with an index of lexemes on PostgreSQL. Misspelt words are first
corrected with a list of all words, which has a trigram index on both databases. This module must not depend on the
search steps and must not import Temporal.
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
    name_similarity,
    rank_spellings,
    resplit_words,
    trigrams,
    word_subsets,
    words_one_edit_away,
)

_MAX_RANKED_NAMES = 1_000
"""Maximum number of matching names that one search orders by length."""
MAX_NAMES = 200
"""Maximum number of names that one search returns. Ten parties are shown, and a party may have several names."""
_MAX_COMPARED_NAMES = 500
"""Maximum number of names of one query whose spelling is compared."""
_MAX_SIMILAR_NAMES = 50
"""Maximum number of names that one comparison of spelling returns. Ten parties are shown; a party may have several
names or not meet the conditions."""
_TRIGRAM_LENGTH = 3
_MAX_SIMILAR_WORDS = 100
"""Maximum number of known words that are compared with a misspelt word: those that share the most trigrams."""
_MAX_COUNTED_POSTINGS = 10_000
"""SQLite searches for the rarest trigrams of a word that together have at most this many index entries."""
_MIN_TRIGRAM_SHARE = "0.2"
"""Minimum share of trigrams that two words have in common; value of the PostgreSQL option `similarity_threshold`."""
_MIN_TRIGRAM_WORD_LETTERS = 5
"""Minimum letters of an unknown word for the comparison by trigrams; shorter words have too few trigrams."""
_MAX_CORRECTED_WORDS = 12
"""Maximum number of words of a text whose spelling is corrected; the other words must match exactly."""

RequiredWords = Sequence[Spellings]
"""Possible spellings of each query word; a matching name contains at least one spelling of every word."""


@dataclass(frozen=True, slots=True)
class KnownName:
    """One name of a party.

    Args:
        id: id of the party.
        party_name: the party's own name.
        words: words of the name, which is the party's own name or an additional name.
        core: the words before the legal form.
    """

    id: str
    party_name: str
    kind: str
    jurisdiction: str
    use: str
    words: tuple[str, ...]
    core: tuple[str, ...]


class NameIndex:
    """Fetches names from one snapshot of the store: at most `MAX_NAMES` per query, the shortest names first.

    Args:
        kinds: kinds of the parties, `None` for any.
        jurisdiction: ISO 3166 code of the parties or of their country, `None` for any.
    """

    def __init__(self, session: Session, *, kinds: Sequence[str] | None, jurisdiction: str | None = None) -> None:
        self._session = session
        self._kinds = kinds
        self._jurisdiction = jurisdiction
        self._is_sqlite = session.get_bind().dialect.name == "sqlite"
        # Tags are `#fund #us #us_de`: kind, country, subdivision. Use the kind and the most specific place.
        all_tags = [party_tags(kind, jurisdiction or "") for kind in kinds or [""]]
        required_tags = [[tag for tag in (tags[0], tags[-1]) if tag != "#"] for tags in all_tags]
        # For each kind, the tags that all parties of the kind have.
        self._tags = [tags for tags in required_tags if tags]

    def exact_names(self, words: Sequence[str], core: Sequence[str]) -> list[KnownName]:
        """Return the names that consist of these words in any order, or of the core words with any or no legal form."""
        query = "SELECT * FROM party_search WHERE core IN (:words, :core)"
        return self._fetch(query, {"words": core_of(words), "core": core_of(core)})

    def names_with_words(self, words: Sequence[str]) -> list[KnownName]:
        """Return the names that have all these words, in any order."""
        return self._names_that_match(self._expression([[[word] for word in dict.fromkeys(words)]]))

    def names_with_prefixes(self, prefixes: Sequence[str]) -> list[KnownName]:
        """Return the names whose words start with these prefixes, in this order."""
        if not self._may_be_prefixes(prefixes):
            return []
        expressions = [self._prefix_expression(prefix) for prefix in dict.fromkeys(prefixes)]
        pattern = "%" + "".join(f" {_escape_word(prefix)}%" for prefix in prefixes)
        return self._names_that_match(self._and_expression(expressions), like_pattern=pattern)

    def similar_names(self, words: Sequence[str], *, min_similarity: float) -> Iterator[list[KnownName]]:
        """Yield batches of names with similarly spelt words; later batches require fewer of the words.

        Args:
            words: words of a text, without the legal form.
            min_similarity: minimum rapidfuzz ratio of a name, 0 to 100.
        """
        spellings = self._spellings(words)
        if splits := self._known_splits(words):
            yield self._most_similar_names(splits, words, min_similarity=min_similarity)
        if all(spellings.values()):
            yield self._most_similar_names(
                [[spellings[word] for word in spellings]], words, min_similarity=min_similarity
            )
        for subsets in word_subsets(words, min_similarity=min_similarity):
            required_words = [[spellings[words[position]] for position in positions] for positions in subsets]
            required_words = [spellings_of_words for spellings_of_words in required_words if all(spellings_of_words)]
            if required_words:
                yield self._most_similar_names(required_words, words, min_similarity=min_similarity)

    def _most_similar_names(
        self, alternatives: Sequence[RequiredWords], words: Sequence[str], *, min_similarity: float
    ) -> list[KnownName]:
        """Return the most similar names that match one of the alternatives."""
        # Only a few of hundreds of names are similar, so read the parties of the similar names only.
        ratings = [
            (name_similarity(words, core), search_id) for search_id, core in self._cores(self._expression(alternatives))
        ]
        best_ratings = sorted((-rating, search_id) for rating, search_id in ratings if rating >= min_similarity)[
            :_MAX_SIMILAR_NAMES
        ]
        if not best_ratings:
            return []
        ids = [search_id for _, search_id in best_ratings]
        if self._is_sqlite:
            query = "SELECT * FROM party_search WHERE id IN (SELECT value FROM json_each(:ids))"
            return self._fetch(query, {"ids": json.dumps(ids)})
        return self._fetch("SELECT * FROM party_search WHERE id = ANY(:ids)", {"ids": ids})

    def _cores(self, expression: str) -> list[tuple[int, tuple[str, ...]]]:
        """Return `PartySearch.id` and `KnownName.core` of each matching name.

        If many names match, only names with the required tags are returned.
        """
        # Filtering by tag takes longer than reading all matching names, unless many names match.
        for match in (expression, self._restrict_to_tags(expression)) if self._tags else (expression,):
            query = f"SELECT s.id, s.tokens, s.core {self._match_clause()} LIMIT {_MAX_COMPARED_NAMES}"
            rows = self._session.execute(text(query), {"match": match})
            cores = [(search_id, _core(tokens, core)) for search_id, tokens, core in rows]
            if len(cores) < _MAX_COMPARED_NAMES:
                break
        return cores

    def _may_be_prefixes(self, prefixes: Sequence[str]) -> bool:
        """Return whether each prefix may start a known word. A search for an unknown prefix would take long."""
        if self._is_sqlite:
            query = (
                "SELECT count(*) FROM json_each(:prefixes) b WHERE NOT EXISTS"
                " (SELECT 1 FROM search_word w WHERE w.word >= b.value AND w.word < b.value || char(1114111))"
            )
            return not self._session.scalar(text(query), {"prefixes": json.dumps([*prefixes])})
        # The index does not cover prefixes that are shorter than a trigram. An underscore matches any letter here.
        patterns = [f"{prefix}%" for prefix in prefixes if len(prefix) >= _TRIGRAM_LENGTH]
        query = (
            "SELECT count(*) FROM unnest(CAST(:patterns AS text[])) b(pattern) WHERE NOT EXISTS"
            " (SELECT 1 FROM search_word w WHERE lower(w.word) LIKE b.pattern)"
        )
        return not self._session.scalar(text(query), {"patterns": patterns})

    def _spellings(self, words: Sequence[str]) -> dict[str, Spellings]:
        """Return for each word the known words that it may stand for, the most likely first."""
        correctable_words = sorted(set(words), key=lambda word: (-len(word), word))[:_MAX_CORRECTED_WORDS]
        edits = {word: words_one_edit_away(word) for word in correctable_words}
        known_words = self._known_words({*words, *(edit for word_edits in edits.values() for edit in word_edits)})
        spellings: dict[str, Spellings] = {}
        for word in dict.fromkeys(words):
            candidates = known_words & ({word} | edits.get(word, set()))
            if word in edits and word not in known_words and len(word) >= _MIN_TRIGRAM_WORD_LETTERS:
                candidates |= set(self._similar_words(word))
            spellings[word] = rank_spellings(word, candidates)
        return spellings

    def _known_splits(self, words: Sequence[str]) -> list[RequiredWords]:
        splits = resplit_words(words[:_MAX_CORRECTED_WORDS])
        known_words = self._known_words({word for split in splits for word in split})
        return [[[word] for word in split] for split in splits if known_words.issuperset(split)]

    def _known_words(self, words: set[str]) -> set[str]:
        # The words are passed as one value: thousands of parameters in a statement take longer than the lookup itself.
        sorted_words = sorted(words)
        if self._is_sqlite:
            query = "SELECT word FROM search_word WHERE word IN (SELECT value FROM json_each(:words))"
            return set(self._session.scalars(text(query), {"words": json.dumps(sorted_words)}))
        return set(
            self._session.scalars(
                text("SELECT word FROM search_word WHERE word = ANY(:words)"), {"words": sorted_words}
            )
        )

    def _similar_words(self, word: str) -> list[str]:
        """Return the known words that share the most trigrams with a word."""
        if not self._is_sqlite:
            self._session.execute(
                text("SELECT set_config('pg_trgm.similarity_threshold', :share, true)"), {"share": _MIN_TRIGRAM_SHARE}
            )
            query = (
                "SELECT word FROM search_word WHERE lower(word) % :word"
                " ORDER BY similarity(word, :word) DESC, word LIMIT :n"
            )
            return list(self._session.scalars(text(query), {"word": word, "n": _MAX_SIMILAR_WORDS}))
        rare_trigrams = self._rarest_trigrams(trigrams(word))
        if not rare_trigrams:
            return []
        matches_query = " UNION ALL ".join(
            f"SELECT rowid AS id FROM word_trigrams WHERE word_trigrams MATCH :trigram{number}"
            for number in range(len(rare_trigrams))
        )
        query = (
            f"SELECT w.word FROM (SELECT id, count(*) AS shared FROM ({matches_query}) GROUP BY id"
            " ORDER BY shared DESC, id LIMIT :n) g CROSS JOIN search_word w ON w.id = g.id"
        )
        matches = {f"trigram{number}": _quote_token(trigram) for number, trigram in enumerate(rare_trigrams)}
        return list(self._session.scalars(text(query), {**matches, "n": _MAX_SIMILAR_WORDS}))

    def _rarest_trigrams(self, word_trigrams: Sequence[str]) -> list[str]:
        """Return the rarest trigrams, up to `_MAX_COUNTED_POSTINGS` index entries in total; at least one trigram."""
        count_query = text("SELECT doc FROM word_trigram_counts WHERE term = :term")
        trigram_counts = sorted(
            (count, trigram)
            for trigram in word_trigrams
            if (count := self._session.execute(count_query, {"term": trigram}).scalar())
        )
        rarest_trigrams: list[str] = []
        total = 0
        for count, trigram in trigram_counts:
            total += count
            if rarest_trigrams and total > _MAX_COUNTED_POSTINGS:
                break
            rarest_trigrams.append(trigram)
        return rarest_trigrams

    def _expression(self, alternatives: Sequence[RequiredWords]) -> str:
        """Return the full-text expression for names that match one of the alternatives."""
        return self._or_expression(
            self._and_expression(
                self._or_expression(map(_quote_function(self._is_sqlite), word_spellings))
                for word_spellings in required_words
            )
            for required_words in alternatives
        )

    def _or_expression(self, expressions: Iterable[str]) -> str:
        return f"({(' OR ' if self._is_sqlite else ' | ').join(expressions)})"

    def _and_expression(self, expressions: Iterable[str]) -> str:
        return f"({(' AND ' if self._is_sqlite else ' & ').join(expressions)})"

    def _prefix_expression(self, word: str) -> str:
        return f"{_quote_token(word)} *" if self._is_sqlite else f"{_quote_lexeme(word)}:*"

    def _names_that_match(self, expression: str, *, like_pattern: str | None = None) -> list[KnownName]:
        query = f"SELECT s.* {self._match_clause()}"
        values: dict[str, Any] = {"match": self._restrict_to_tags(expression)}
        if like_pattern is not None:
            query += r" AND ' ' || s.tokens LIKE :like_pattern ESCAPE '\'"
            values["like_pattern"] = like_pattern
        return self._fetch(f"{query} LIMIT {_MAX_RANKED_NAMES}", values)

    def _restrict_to_tags(self, expression: str) -> str:
        """Return the expression restricted to parties of the requested kind and jurisdiction."""
        if not self._tags:
            return self._and_expression([expression])
        quote = _quote_function(self._is_sqlite)
        return self._and_expression(
            [expression, self._or_expression(self._and_expression(map(quote, tags)) for tags in self._tags)]
        )

    def _match_clause(self) -> str:
        """Return the clauses of a query that find the names `s` matching `:match`."""
        if self._is_sqlite:
            return "FROM party_words g CROSS JOIN party_search s ON s.id = g.rowid WHERE g.party_words MATCH :match"
        return "FROM party_search s WHERE array_to_tsvector(string_to_array(s.tokens, ' ')) @@ CAST(:match AS tsquery)"

    def _fetch(self, names_query: str, values: dict[str, Any]) -> list[KnownName]:
        conditions = ["p.status = 'active'"]
        if self._kinds is not None:
            kind_values = {f"kind{number}": kind for number, kind in enumerate(self._kinds)}
            conditions.append(f"p.kind IN ({', '.join(f':{name}' for name in kind_values)})")
            values = {**values, **kind_values}
        if self._jurisdiction is not None:
            # The condition is the same as in `is_within`. Codes contain no LIKE wildcards, so they are not escaped.
            conditions.append("(p.jurisdiction = :jurisdiction OR p.jurisdiction LIKE :subdivisions)")
            values = {**values, "jurisdiction": self._jurisdiction, "subdivisions": f"{self._jurisdiction}-%"}
        query = (
            f"WITH s AS MATERIALIZED ({names_query}) SELECT p.id, p.name, p.kind, p.jurisdiction, s.use, s.tokens,"
            f" s.core FROM s JOIN party p ON p.id = s.party_id WHERE {' AND '.join(conditions)}"
            f" ORDER BY s.word_count, p.name, p.jurisdiction, p.id LIMIT {MAX_NAMES}"
        )
        return [
            KnownName(id_, name, kind, jurisdiction, use, words=_words(tokens), core=_core(tokens, core))
            for id_, name, kind, jurisdiction, use, tokens, core in self._session.execute(text(query), values)
        ]


def is_within(jurisdiction: str, outer_jurisdiction: str) -> bool:
    """Return whether one ISO 3166 code equals the other or is one of its subdivisions: `US-DE` is within `US`."""
    return jurisdiction == outer_jurisdiction or jurisdiction.startswith(f"{outer_jurisdiction}-")


def _words(tokens: str) -> tuple[str, ...]:
    return tuple(token for token in tokens.split() if not token.startswith("#"))


def _core(tokens: str, core: str) -> tuple[str, ...]:
    """Return the core words in the order of the name; the stored core is sorted."""
    return tuple(tokens.split()[: len(core.split())])


def _quote_function(is_sqlite: bool) -> Callable[[str], str]:
    return _quote_token if is_sqlite else _quote_lexeme


def _quote_token(token: str) -> str:
    """Return a token as an FTS5 string; words have no quotation mark."""
    return f'"{token}"'


def _quote_lexeme(token: str) -> str:
    """Return a token as a lexeme of a PostgreSQL query; words have no quotation mark and no backslash."""
    return f"'{token}'"


def _escape_word(word: str) -> str:
    """Escape a word for LIKE; the underscore is the only wildcard that a word can have."""
    return word.replace("_", r"\_")
