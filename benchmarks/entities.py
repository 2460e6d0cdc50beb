"""`python -m benchmarks.entities [--parties N] [--database URL]`: search times among a million parties.

Fills a store without its search index, builds the index by opening the store, and measures each kind of search. Without
`--database`, the store is a temporary SQLite file. A database at URL must be empty, and keeps the rows afterwards.
The results are saved if N is a million or more. The exit code is 1 only if a figure exceeds its goal by more than the
factor 1.5.
"""

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from sqlalchemy import Table, create_engine, insert

from benchmarks.figures import Figure, figure_to_json, format_table, save_document
from dagwright_onboarding.database import EntityDatabase
from dagwright_onboarding.lookup import find_parties
from dagwright_onboarding.models import Base, Party, PartyIdentifier, PartyName
from dagwright_onboarding.names import name_key

PARTIES = 1_000_000
SEARCHES = 200
"""Number of searches of each kind."""
GOAL_MS = 100.0
"""Goal for the 95th percentile of each kind."""
SEED = 7

_RESULTS = Path(__file__).resolve().parent / "results"
_ROWS_PER_STATEMENT = 5_000
_SAMPLE_STEP = 501
"""The kinds of parties repeat every four parties; an odd step samples all kinds."""
_SYLLABLES = "ba be bo da den do el fa fer ga gel ha hol jo ka kel la lin lo ma mer mi na nor o pa per ra rin ro sa sel"
_SECTORS = ("Capital", "Partners", "Holdings", "Services", "Advisers", "Energy", "Logistics", "Media", "Property")
_STRATEGIES = ("Global Equity", "Global Bond", "Infrastructure", "Private Credit", "Small Cap", "Real Estate")
_LEGAL_FORMS = ("S.A.", "S.à r.l.", "Ltd", "Limited", "GmbH", "plc", "B.V.", "Inc.")
_COUNTRIES = ("LU", "IE", "GB", "DE", "FR", "US", "CH", "KY", "NL", "ES")


def _party_row(number: int, kind: str, name: str, country: str) -> dict[str, Any]:
    return {
        "id": f"{kind}_{number}",
        "kind": kind,
        "name": name,
        "name_key": name_key(name),
        "jurisdiction": country,
        "distinguisher": str(number),
    }


def _random_words(generator: random.Random, count: int) -> list[str]:
    syllables = _SYLLABLES.split()
    words: dict[str, None] = {}
    while len(words) < count:
        words["".join(generator.choices(syllables, k=generator.randint(2, 4))).title()] = None
    return list(words)


def _skewed_choice(generator: random.Random, words: list[str]) -> str:
    """Choose a word; a word is chosen more often than the words after it."""
    return words[int(len(words) * generator.random() ** 3)]


def _swap_letters(generator: random.Random, name: str) -> str:
    """Swap two letters of the first word of a name."""
    position = generator.randrange(0, len(name.split(maxsplit=1)[0]) - 1)
    return name[:position] + name[position + 1] + name[position] + name[position + 2 :]


def _misspell(generator: random.Random, name: str) -> str:
    """Double a letter in the first word of a name and drop a letter in the second."""
    first_word, second_word, *other_words = name.split()
    doubled_at, dropped_at = generator.randrange(1, len(first_word)), generator.randrange(1, len(second_word))
    return " ".join(
        [
            first_word[:doubled_at] + first_word[doubled_at - 1] + first_word[doubled_at:],
            second_word[:dropped_at] + second_word[dropped_at + 1 :],
            *other_words,
        ]
    )


def generate_parties(count: int) -> Iterator[tuple[dict[str, Any], str | None, str | None]]:
    """Yield each party as its row, its alias or `None`, and its identifier or `None`; the data is deterministic.

    Half of the parties are persons. As in a register, a few names are very common, and most names are rare.
    """
    generator = random.Random(SEED)
    first_names, last_names, company_words = (_random_words(generator, number) for number in (3_000, 40_000, 30_000))
    for number in range(count):
        kind = ("person", "person", "company", "fund")[number % 4]
        alias = None
        if kind == "person":
            given_name, family_name = _skewed_choice(generator, first_names), _skewed_choice(generator, last_names)
            name = f"{given_name} {family_name}"
            alias = f"{given_name[0]}. {family_name}" if number % 40 == 0 else None
        else:
            base_name = f"{_skewed_choice(generator, company_words)} {_skewed_choice(generator, company_words)}"
            if kind == "company":
                name = f"{base_name} {generator.choice(_SECTORS)} {generator.choice(_LEGAL_FORMS)}"
            else:
                name = f"{base_name} {generator.choice(_STRATEGIES)} Fund {generator.randint(1, 9)}"
            alias = f"{base_name} {number}" if number % 10 == 3 else None
        yield (
            _party_row(number, kind, name, generator.choice(_COUNTRIES)),
            alias,
            f"{number:020d}" if kind != "person" else None,
        )


def fill(url: str, count: int) -> list[tuple[str, str]]:
    """Insert the parties; return the name and kind of some parties as search targets."""
    tables = [Base.metadata.tables[model.__tablename__] for model in (Party, PartyName, PartyIdentifier)]
    engine = create_engine(url)
    targets = []
    try:
        Base.metadata.create_all(engine, tables=tables)
        rows = generate_parties(count)
        with engine.begin() as connection:
            while batch := list(islice(rows, _ROWS_PER_STATEMENT)):
                parties = [party for party, _, _ in batch]
                targets += [(party["name"], party["kind"]) for party in parties[::_SAMPLE_STEP]]
                aliases = [
                    {"party_id": party["id"], "name": alias, "name_key": name_key(alias), "use": "alias"}
                    for party, alias, _ in batch
                    if alias
                ]
                identifiers = [
                    {"party_id": party["id"], "scheme": "LEI", "value": lei} for party, _, lei in batch if lei
                ]
                for model, rows_of_model in ((Party, parties), (PartyName, aliases), (PartyIdentifier, identifiers)):
                    database_table = model.__table__
                    assert isinstance(database_table, Table)
                    connection.execute(insert(database_table), rows_of_model)
    finally:
        engine.dispose()
    return targets


SearchTextMaker = Callable[[random.Random, str], str]

_KINDS_OF_SEARCH: dict[str, tuple[tuple[str, ...], SearchTextMaker]] = {
    "identifier": (("company", "fund"), lambda generator, _name: f"{generator.randrange(1000) * 4 + 2:020d}"),
    "exact name": (("person", "company", "fund"), lambda _generator, name: name.upper()),
    "alias": (("person",), lambda _generator, name: f"{name[0]}. {name.split()[1]}"),
    "other legal form": (("company",), lambda _generator, name: " ".join(name.split()[:3]) + " LLC"),
    "all words": (("person", "fund"), lambda _generator, name: " ".join(reversed(name.split()[:2]))),
    "one word": (("person", "company", "fund"), lambda _generator, name: name.split()[-1].strip(".")),
    "word prefixes": (("company", "fund"), lambda _generator, name: " ".join(word[:4] for word in name.split()[:3])),
    "swapped letters": (("person",), _swap_letters),
    "one word too many": (("company", "fund"), lambda _generator, name: f"{name} Feeder"),
    "near miss": (("person", "company", "fund"), _misspell),
    "nothing like it": (("person",), lambda generator, _name: " ".join(generator.sample(["zwyq", "xkvj", "uqux"], 2))),
}
"""Kind of search -> the kinds of parties to search for, and the function that makes the search text from a name."""


def measure(database: EntityDatabase, targets: list[tuple[str, str]]) -> list[Figure]:
    """Return two figures for each kind of search; the kinds alternate, so that other load affects all kinds."""
    generator = random.Random(SEED)
    durations_by_search: dict[str, list[float]] = {search_kind: [] for search_kind in _KINDS_OF_SEARCH}
    hit_counts: dict[str, int] = dict.fromkeys(_KINDS_OF_SEARCH, 0)
    for _ in range(SEARCHES):
        for search_kind, (party_kinds, make_text) in _KINDS_OF_SEARCH.items():
            name, kind = generator.choice([entry for entry in targets if entry[1] in party_kinds])
            text = make_text(generator, name)
            started_at = time.perf_counter()
            findings = database.read(partial(find_parties, search_text=text, entity_type=kind))
            durations_by_search[search_kind].append((time.perf_counter() - started_at) * 1_000)
            hit_counts[search_kind] += bool(findings.hits or findings.near_matches)
    figures = []
    for search_kind, durations_ms in durations_by_search.items():
        samples = {"samples": [round(entry, 2) for entry in durations_ms], "found_something": hit_counts[search_kind]}
        figures.append(Figure(f"{search_kind}: median", statistics.median(durations_ms), None, unit="ms"))
        p95 = statistics.quantiles(durations_ms, n=20)[-1]
        figures.append(Figure(f"{search_kind}: 95th percentile", p95, GOAL_MS, unit="ms", measured=samples))
    return figures


def main() -> int:
    """Run the benchmark and return the exit code."""
    parser = argparse.ArgumentParser(prog="benchmarks.entities", description=__doc__)
    parser.add_argument("--parties", type=int, default=PARTIES)
    parser.add_argument("--database", help="URL of an empty database (default: a SQLite file)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        url = options.database or f"sqlite:///{folder}/parties.db"
        targets = fill(url, options.parties)
        database = EntityDatabase(url)
        try:
            started_at = time.monotonic()
            database.read(lambda session: session.connection())
            index_figure = Figure("first build of the search index", time.monotonic() - started_at, None, unit="s")
            figures = [index_figure, *measure(database, targets)]
        finally:
            database.dispose()
    print(format_table(figures))
    if options.parties >= PARTIES:
        backend = url.partition(":")[0].partition("+")[0]
        document = {"parties": options.parties, "figures": [figure_to_json(figure) for figure in figures]}
        description = f"{options.parties:,} parties, {backend}, {SEARCHES} searches of each kind"
        save_document(
            _RESULTS, f"entities-{backend}", text=format_table(figures), document=document, workload_text=description
        )
    return 1 if any(figure.verdict == "failed" for figure in figures) else 0


if __name__ == "__main__":
    sys.exit(main())
