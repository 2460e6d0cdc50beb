"""Loading parties from CSV: repeatedly, in batches or row by row, with the reason for each rejected row."""

import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import event, select
from sqlalchemy.orm import Session

from dagwright_onboarding import party_loading
from dagwright_onboarding.database import EntityDatabase
from dagwright_onboarding.models import Party, PartyIdentifier, PartyName, PartySearch
from dagwright_onboarding.overview import RowKind, read_overview
from dagwright_onboarding.party_file import PartiesUnreadable, RejectedRow, read_parties
from dagwright_onboarding.party_loading import DuplicateRow, LoadReport, RenamedRow, load_parties, load_party_file
from dagwright_onboarding.simple_rows import SimpleRows
from tests.support.example_counts import example_count
from tests.support.parties import Load, find, find_names

pytestmark = pytest.mark.waits

EXAMPLES = Path(__file__).parents[3] / "examples" / "onboarding"


def test_example_loads_completely_and_a_second_load_changes_nothing(database: EntityDatabase) -> None:
    assert load_parties(database, EXAMPLES / "parties.csv") == LoadReport(32, 0, 0, (), ())
    overview_before = read_overview(database)
    assert load_parties(database, EXAMPLES / "parties.csv") == LoadReport(0, 0, 32, (), ())
    assert read_overview(database) == overview_before
    assert [overview_before.counts[kind] for kind in (RowKind.PERSON, RowKind.COMPANY, RowKind.FUND)] == [15, 11, 6]


def test_rejected_rows_are_reported_by_line(database: EntityDatabase) -> None:
    report = load_parties(database, EXAMPLES / "rejected_rows.csv")
    assert (report.added, report.ignored_columns) == (1, ("desk",))
    assert [(row.line, row.reason.partition(";")[0][:52]) for row in report.rejected] == [
        (3, "the name is empty"),
        (4, "jurisdiction 'ZZZ' is not an ISO 3166 code"),
        (5, "kind: expected person, company, fund, got 'vehicle'."),
        (6, "LEI '635400BLACKROCKMAN99' has wrong check digits"),
        (7, "date_of_birth '31.12.1970' is not a date such as 197"),
        (8, "the row has 7 fields, the header has 6"),
    ]


def test_byte_order_mark_quotes_and_line_breaks_in_fields_are_read(load: Load, database: EntityDatabase) -> None:
    text = '\ufeffName,Kind,Aliases\r\n"Smith, ""Jo"" & Sons",company,"Smith Sons|The\r\nSmiths"\r\n\r\nBad,kind,\r\n'
    report = load(text)
    assert (report.added, [row.line for row in report.rejected]) == (1, [5])
    for search_text in ('Smith, "Jo" & Sons', "the smiths"):
        assert find_names(database, search_text, "company") == ['Smith, "Jo" & Sons']


def test_later_file_adds_names_identifier_and_status(load: Load, database: EntityDatabase) -> None:
    load("name,kind,jurisdiction\nKite AG,company,CH\n")
    second_file = (
        "name,kind,jurisdiction,aliases,former_names,lei,status\n"
        "KITE ag,company,ch,Kite|kite,Old Kite AG,635400BLACKROCKMAN14,\n"
        "Old Mill Ltd,company,GB,,,,inactive\n"
    )
    assert load(second_file) == LoadReport(1, 1, 0, (), ())
    assert load(second_file) == LoadReport(0, 0, 2, (), ())
    for search_text in ("Kite", "Old Kite AG", "635400blackrockman14"):
        assert find_names(database, search_text, "company") == ["Kite AG"]


def test_rows_that_contradict_the_database_are_rejected(load: Load, database: EntityDatabase) -> None:
    text = (
        "id,name,kind,jurisdiction,client_type,lei\n"
        "kite,Kite AG,company,CH,,635400BLACKROCKMAN14\n"
        "kite,Other AG,company,CH,,\n"
        "other,Kite AG,company,CH,,\n"
        ",Rook AG,company,CH,,635400BLACKROCKMAN14\n"
        ",Kite AG,company,CH,,771200BLACKROCKMAN14\n"
        ",Rook Fund,fund,CH,,\n"
        ",Rook Fund,fund,CH,trust,\n"
        ",Pat Lee,person,,fund,\n"
        ",Pat Lee,person,,,635400BLACKROCKMAN14\n"
    )
    report = load(text)
    assert report.added == 2
    assert report.rejected == (
        RejectedRow(3, "id: 'kite' is called 'Kite AG' in line 2"),
        RejectedRow(4, "id: company 'Kite AG' (CH) already exists with the id 'kite', not 'other'"),
        RejectedRow(5, "lei: 635400BLACKROCKMAN14 belongs to company 'Kite AG' (CH)"),
        RejectedRow(6, "lei: company 'Kite AG' (CH) has the LEI 635400BLACKROCKMAN14, not 771200BLACKROCKMAN14"),
        RejectedRow(8, "client_type: fund 'Rook Fund' (CH) is a 'fund', not 'trust'"),
        RejectedRow(9, "client_type: only a fund has a client type, not a person"),
        RejectedRow(10, "lei: a person cannot have a LEI"),
    )
    assert read_overview(database).counts[RowKind.COMPANY] == 1


def test_rows_with_an_invalid_name_or_id_are_rejected(load: Load) -> None:
    text = "id,name,kind\n,Evil \u202e oC,company\n,Z\u200bw Co,company\n,\u3164,company\nfund_1,Ann Lee,person\n"
    report = load(text)
    assert report.added == 0
    assert report.rejected == (
        RejectedRow(2, "'Evil \\u202e oC' is not a name: it has the character U+202E at position 5"),
        RejectedRow(3, "'Z\\u200bw Co' is not a name: it has the character U+200B at position 1"),
        RejectedRow(4, "'\u3164' is not a name: it has the character U+3164 at position 0"),
        RejectedRow(5, "id: 'fund_1' has the prefix of a fund, but the row is a person"),
    )


def test_persons_with_the_same_name_are_distinguished_by_date_of_birth(load: Load) -> None:
    text = "name,kind,jurisdiction,date_of_birth\nAnn Lee,person,GB,1970-01-01\nAnn Lee,person,GB,1980-01-01\n"
    assert load(text).added == 2


def test_row_that_may_be_an_existing_party_is_reported(load: Load) -> None:
    text = (
        "name,kind,jurisdiction,date_of_birth,status\n"
        "Ann Lee,person,GB,1970-01-01,\n"
        "ann lee,person,GB,,\n"
        "Ann Lee,person,IE,1970-01-01,\n"
        "Ann Lee,person,GB,1980-01-01,inactive\n"
        "Kite AG,company,CH,,\n"
        "Kite AG,company,DE,,\n"
        "Kite AG,company,,,\n"
        "Kite AG,fund,CH,,\n"
        "Ben Ray,person,GB,1970-01-01,inactive\n"
        "Ben Ray,person,GB,,\n"
    )
    report = load(text)
    assert (report.added, report.rejected) == (10, ())
    expected = (DuplicateRow(3, "person 'Ann Lee' (GB), born 1970-01-01"), DuplicateRow(8, "company 'Kite AG' (CH)"))
    assert report.duplicates == expected
    assert load(text).duplicates == ()


def test_blank_status_leaves_a_party_unchanged_and_is_reported(load: Load, database: EntityDatabase) -> None:
    header = "name,kind,status\n"
    load(f"{header}Kite AG,company,inactive\nRook AG,company,\n")
    blank_report = load(f"{header}Kite AG,company,\nRook AG,company,\n")
    assert (blank_report.unchanged, blank_report.still_inactive) == (2, 1)
    assert find_names(database, "Kite AG", "company") == []
    second_report = load(f"{header}Kite AG,company,active\n")
    assert (second_report.updated, second_report.still_inactive) == (1, 0)
    assert find_names(database, "Kite AG", "company") == ["Kite AG"]


def test_broken_quote_rejects_only_its_row(load: Load) -> None:
    text = 'name,kind\n"A" b,person\nGood One,person\n"never closed,person\nAnn Lee,person\n"Smith\nLtd",company\n'
    text += 'Ben Ray,person\n"never again,person\n\n"odd" "\n",person\nCy Poe,person\n'
    report = load(text)
    assert (report.added, report.rejected[1].line) == (5, 4)
    assert [row.line for row in report.rejected] == [2, 4, 9, 11, 12]
    last_report = load('name,kind\nDee,person\n"Eve,person\nFay,person\n')
    assert (last_report.added, last_report.rejected) == (2, (RejectedRow(3, "invalid CSV: unclosed quote"),))


def test_only_rows_that_are_not_utf_8_are_rejected(load: Load) -> None:
    content = b"\xef\xbb\xbfname,kind,note\nJos\xe9,person,\nAnn Lee,person,\nBen Ray,person,caf\xe9\n"
    report = load(content)
    reason = "not UTF-8 (byte 0xe9); save the file as UTF-8"
    assert (report.added, report.rejected) == (1, (RejectedRow(2, reason), RejectedRow(4, reason)))


HEADER_WITH_ID = "id,name,kind,jurisdiction,date_of_birth,status\n"


def test_row_with_the_id_of_a_party_renames_the_party_once(load: Load, database: EntityDatabase) -> None:
    load(f"{HEADER_WITH_ID}kite,Kite AG,company,CH,,\nann,Ann Lee,person,,1970-01-01,\n")
    renames = f"{HEADER_WITH_ID}kite,Rook AG,company,ch,,\nann,Ann Poe,person,,,\n"
    report = load(renames)
    renamed_rows = (
        RenamedRow(2, "company 'Rook AG' (CH)", "Kite AG"),
        RenamedRow(3, "person 'Ann Poe' (jurisdiction unknown)", "Ann Lee"),
    )
    assert report == LoadReport(0, 2, 0, (), (), renamed=renamed_rows)
    assert load(renames) == LoadReport(0, 0, 2, (), ())
    hits = find(database, "Kite AG", "company").hits
    assert [(hit.id, hit.name, hit.reason) for hit in hits] == [("kite", "Rook AG", "other name")]
    assert find_names(database, "Rook AG", "company") == ["Rook AG"]


def test_name_that_a_party_gets_back_is_no_longer_a_former_name(load: Load, database: EntityDatabase) -> None:
    for name in ("Kite AG", "Rook AG", "Kite AG", "KITE ag"):
        report = load(f"{HEADER_WITH_ID}kite,{name},company,CH,,\n")
    # Another spelling is not a former name.
    assert report.renamed == (RenamedRow(2, "company 'KITE ag' (CH)", "Kite AG"),)

    def names(session: Session) -> list[str]:
        return list(session.scalars(select(PartyName.name).order_by(PartyName.id)))

    assert database.read(names) == ["Rook AG"]
    for name in ("Kite AG", "Rook AG"):
        assert find_names(database, name, "company") == ["KITE ag"]


def test_row_with_the_id_of_a_party_can_change_only_the_name_of_the_party(load: Load) -> None:
    load(f"{HEADER_WITH_ID}kite,Kite AG,company,CH,,\nrook,Rook AG,company,CH,,\n")
    rows = "kite,Rook AG,company,CH,,\nkite,Kite Fund,fund,CH,,\nrook,Rook Bank,company,DE,,\n"
    report = load(f"{HEADER_WITH_ID}{rows}")
    assert report.rejected == (
        RejectedRow(
            2,
            "id: 'kite' belongs to company 'Kite AG' (CH), "
            "but the new name belongs to company 'Rook AG' (CH) with the id 'rook'",
        ),
        RejectedRow(3, "id: 'kite' is called 'Rook AG' in line 2"),
        RejectedRow(4, "id: 'rook' belongs to company 'Rook AG' (CH); only its name can change"),
    )
    fund_report = load(f"{HEADER_WITH_ID}kite,Kite Fund,fund,CH,,\n")
    assert fund_report.rejected == (
        RejectedRow(2, "id: 'kite' belongs to company 'Kite AG' (CH); only its name can change"),
    )


@pytest.mark.parametrize("order", [(1, 2, 3, 4), (4, 3, 2, 1), (3, 1, 4, 2)])
def test_chain_of_renames_needs_one_load(load: Load, database: EntityDatabase, order: tuple[int, ...]) -> None:
    def rows(names: dict[int, str], numbers: tuple[int, ...]) -> str:
        return HEADER_WITH_ID + "".join(f"p{number},{names[number]},company,CH,,\n" for number in numbers)

    load(rows({1: "Alpha", 2: "Beta", 3: "Gamma"}, (1, 2, 3)))
    # p4 is new, and has the former name of p1.
    renames = rows({1: "Beta", 2: "Gamma", 3: "Delta", 4: "Alpha"}, order)
    report = load(renames)
    assert (report.added, report.updated, report.rejected) == (1, 3, ())
    assert [row.line for row in report.renamed] == sorted(2 + order.index(number) for number in (1, 2, 3))
    assert [row.line for row in report.duplicates] == sorted(row.line for row in report.duplicates)
    second_report = load(renames)
    assert replace(second_report, duplicates=()) == LoadReport(0, 0, 4, (), ())

    def read_names(session: Session) -> dict[str, str]:
        return {party.id: party.name for party in session.scalars(select(Party))}

    assert database.read(read_names) == {"p1": "Beta", "p2": "Gamma", "p3": "Delta", "p4": "Alpha"}


def test_rows_that_exchange_names_are_reported_with_a_remedy(load: Load) -> None:
    load(f"{HEADER_WITH_ID}kite,Kite,company,CH,,\nrook,Rook,company,CH,,\n")
    swapped_rows = f"{HEADER_WITH_ID}kite,Rook,company,CH,,\nrook,Kite,company,CH,,\n"

    def reason(party_id: str, name: str, other_id: str, other_name: str) -> str:
        return (
            f"id: {party_id!r} belongs to company {name!r} (CH), "
            f"but the new name belongs to company {other_name!r} (CH) with the id {other_id!r}; "
            f"the rows swap names; first give {other_id!r} a third name in a separate load"
        )

    assert load(swapped_rows).rejected == (
        RejectedRow(2, reason("kite", "Kite", "rook", "Rook")),
        RejectedRow(3, reason("rook", "Rook", "kite", "Kite")),
    )
    assert load(f"{HEADER_WITH_ID}rook,Third,company,CH,,\n").updated == 1
    report = load(swapped_rows)
    assert (report.updated, report.rejected) == (2, ())


def test_row_with_the_former_name_of_another_party_is_reported(load: Load) -> None:
    for name in ("Kite AG", "Rook AG"):
        load(f"{HEADER_WITH_ID}kite,{name},company,CH,,\n")
    report = load("name,kind,jurisdiction\nKite AG,company,CH\n")
    assert (report.added, report.duplicates) == (1, (DuplicateRow(2, "company 'Rook AG' (CH)"),))


COLUMNS_ADVICE = "the first line of a CSV file of parties names its columns, such as name, kind, jurisdiction"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"name,kind,Caf\xe9\nAnn,person,\n", r"line 1: not UTF-8 \(byte 0xe9\); save the file as UTF-8"),
        (b"", "the first line must name the columns; it is empty"),
        (b"name,type\n", f"the column kind is missing; {COLUMNS_ADVICE}; this line has name, type"),
        (
            b'{"plan": 1, "nodes": [' + b"1," * 200 + b"1]}",
            f"the columns name and kind are missing; {COLUMNS_ADVICE}; this line has something else",
        ),
        (b"x" * 200_000, "the first line must name the columns of a CSV file of parties: field larger than"),
        (b"name,kind,Name\n", "duplicate column name"),
        (b'"name,kind\n', "the first line must name the columns of a CSV file of parties: "),
    ],
)
def test_unusable_file_is_reported_in_one_sentence(load: Load, content: bytes, message: str) -> None:
    with pytest.raises(PartiesUnreadable, match=message):
        load(content)


def test_missing_file_is_reported(database: EntityDatabase, tmp_path: Path) -> None:
    with pytest.raises(PartiesUnreadable, match=r"none\.csv: No such file or directory"):
        load_parties(database, tmp_path / "none.csv")


def test_products_and_roles_are_not_loaded_as_parties(load: Load) -> None:
    report = load("name,kind\nCustody,product\nDirector,role\nAnn Lee,Person\n")
    reason = "kind: a {} is not a party; products and roles are fixed in the catalogue"
    assert report.added == 1
    assert report.rejected == (RejectedRow(2, reason.format("product")), RejectedRow(3, reason.format("role")))


def test_lei_may_be_written_in_groups(load: Load, database: EntityDatabase) -> None:
    load("name,kind,lei\nKite AG,company,6354 00bl-ackrockman 14\n")
    for search_text in ("635400BLACKROCKMAN14", "6354 00BL ACKR OCKM AN14", "635400-blackrockman-14"):
        assert find_names(database, search_text, "company") == ["Kite AG"]


HEADER = "id,name,kind,jurisdiction,aliases,former_names,lei,date_of_birth,status"
LEIS = ("635400BLACKROCKMAN14", "771200BLACKROCKMAN14")


def file_content(rows: list[str]) -> bytes:
    return "\n".join([HEADER, *rows]).encode()


def test_rows_of_new_parties_take_few_statements(database: EntityDatabase) -> None:
    load_party_file(database, read_parties(file_content([",Ann Lee,person,,,,,,"]), name="one"))
    statements: list[str] = []
    event.listen(database._ready_engine(), "before_cursor_execute", lambda *arguments: statements.append(arguments[2]))
    rows = [f"p{number},Person{number} Lee{number},person,GB,,Former{number},,1980-01-01," for number in range(200)]
    report = load_party_file(database, read_parties(file_content(rows), name="many"))
    assert report.added == 200
    # Each former name takes one statement. Loading row by row would take over ten statements per row.
    assert len(statements) < 300
    statements.clear()
    report = load_party_file(database, read_parties(file_content(rows), name="again"))
    assert report.unchanged == 200
    assert len(statements) < 30


def random_rows(dice: random.Random, count: int) -> list[str]:
    """Return random rows, of which many refer to the same parties."""
    names = [f"{first} {last}" for first in ("Ann", "ANN", "Bo", "Cy") for last in ("Lee", "Ray", "Poe")]
    rows = []
    for number in range(count):
        kind = dice.choice(("person", "company", "fund"))
        party_id = dice.choice(("", "", f"i{dice.randrange(8)}"))
        name = dice.choice([*names, *(f"Only{number}{letter}" for letter in "abcdef")])
        jurisdiction = dice.choice(("", "GB", "LU"))
        date_of_birth = dice.choice(("", "1980-01-01")) if kind == "person" else ""
        aliases, former_names = ("|".join(dice.sample(names, dice.choice((0, 0, 1, 2)))) for _ in range(2))
        lei = dice.choice(("", "", *LEIS)) if kind != "person" else ""
        status = dice.choice(("", "", "active", "inactive"))
        rows.append(f"{party_id},{name},{kind},{jurisdiction},{aliases},{former_names},{lei},{date_of_birth},{status}")
    return rows


def database_content(session: Session) -> list[object]:
    """Return the content of a database without random ids."""
    parties = {party.id: party for party in session.scalars(select(Party))}
    # An id from a file starts with `i`; all other ids are random.
    facts = {key: (party.kind, party.name, party.jurisdiction, party.distinguisher) for key, party in parties.items()}
    return [
        sorted(
            (*facts[key], party.client_type, party.status, key[:1] == "i" and key) for key, party in parties.items()
        ),
        sorted((*facts[row.party_id], row.name, row.use) for row in session.scalars(select(PartyName))),
        sorted((*facts[row.party_id], row.value) for row in session.scalars(select(PartyIdentifier))),
        sorted(
            (*facts[row.party_id], row.use, row.core, row.tokens, row.word_count)
            for row in session.scalars(select(PartySearch))
        ),
    ]


def without_random_ids(report: LoadReport) -> LoadReport:
    """Return a report without random ids, and without fields that are derived from them."""
    rejected_rows = tuple(replace(row, reason=re.sub(r"_[a-z2-7]{16}", "_", row.reason)) for row in report.rejected)
    duplicates = tuple(replace(duplicate, other="") for duplicate in report.duplicates)
    return replace(report, rejected=rejected_rows, duplicates=duplicates)


@pytest.mark.parametrize("seed", range(max(2, example_count(6))))
def test_batched_load_has_the_result_of_a_load_row_by_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    dice = random.Random(seed)
    first, second = (read_parties(file_content(random_rows(dice, 30)), name="some") for _ in range(2))
    files = [first, first, second, first]

    def load_files(name: str) -> tuple[list[LoadReport], list[object]]:
        database = EntityDatabase(f"sqlite:///{tmp_path / name}.db")
        reports = [without_random_ids(load_party_file(database, file)) for file in files]
        content_after = database.read(database_content)
        database.dispose()
        return reports, content_after

    batch_results = load_files("together")
    monkeypatch.setattr(party_loading, "load_simple_rows", lambda *_: SimpleRows(frozenset(), {}))
    assert batch_results == load_files("one_by_one")
    assert batch_results[0][0].added > 3
