"""Reading a CSV file of parties into checked rows, each with the line it starts on.

Columns: `name` and `kind` (`person`, `company`, `fund`) are required; `id`, `jurisdiction`, `client_type`,
`aliases` and `former_names` (separated by `|`), `lei`, `born` (YYYY-MM-DD) and `status` (`active`, `inactive`) are
optional. What is blank changes nothing: a party keeps its status, and a new one is active.
UTF-8, with or without a byte order mark; fields separated by commas or semicolons, quoted where needed.
This module must not import the database.
"""

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dagwright.plugins.entities import UnknownEntityType
from dagwright_onboarding.catalogue import (
    PartyKind,
    checked_client_type,
    checked_date_of_birth,
    checked_lei,
    kind_of_entity_type,
    nearest,
)
from dagwright_onboarding.jurisdictions import jurisdiction_of
from dagwright_onboarding.models import PartyStatus
from dagwright_onboarding.names import clean_name, identifier_key
from dagwright_onboarding.parties import NaturalKey, is_id
from dagwright_onboarding.text_formats import check_name

REQUIRED_COLUMNS = ("name", "kind")
OPTIONAL_COLUMNS = (*("id", "jurisdiction", "client_type", "aliases", "former_names", "lei", "born", "status"),)

_HEADER_SHOWN = 200
"""Characters of a header that a message repeats; a file of another kind may have all of it in its first line."""


_HALVES = 0xDC00
_HALF = re.compile("[\udc80-\udcff]")
"""What stands for a byte that is not UTF-8, as `surrogateescape` has it: `_HALVES` and the byte."""
_NOT_CLOSED = "unexpected end of data"
"""What the reader says of a quote that is open at the end of the file."""


class CsvReader(Protocol):
    """What `csv.reader` returns; its class has no public name."""

    line_num: int

    def __next__(self) -> list[str]: ...


class PartiesUnreadable(ValueError):
    """The file as a whole cannot be used; the text is one sentence that says why."""


@dataclass(frozen=True, slots=True)
class PartyRow:
    """One checked row.

    Args:
        line: line of the file on which the row starts, 1 for the first.
        status: None where the file says nothing.
    """

    line: int
    key: NaturalKey
    id: str | None
    client_type: str
    aliases: tuple[str, ...]
    former_names: tuple[str, ...]
    lei: str | None
    status: PartyStatus | None


@dataclass(frozen=True, slots=True)
class RefusedRow:
    """A row that was left out, and why."""

    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class PartyFile:
    """What a file holds, in the order of its lines."""

    rows: tuple[PartyRow, ...]
    refused: tuple[RefusedRow, ...]
    ignored_columns: tuple[str, ...]


def read_party_file(path: Path) -> PartyFile:
    """Returns the rows of a file, good and refused ones.

    Raises:
        PartiesUnreadable: no such file, no header, or a column that is missing or there twice.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise PartiesUnreadable(f"{path}: {error.strerror or error}") from error
    return read_parties(raw, name=str(path))


def read_parties(raw: bytes, *, name: str) -> PartyFile:
    """Returns the rows of a file that was read already, good and refused ones.

    Args:
        name: what messages call the file.

    Raises:
        PartiesUnreadable: no header, or a column that is missing or there twice.
    """
    # What is not UTF-8 costs only its row, and stands in it as halves of characters.
    lines = list(io.StringIO(raw.decode("utf-8-sig", errors="surrogateescape"), newline=""))
    delimiter = ";" if lines and lines[0].count(";") > lines[0].count(",") else ","
    reader = _reader(lines, delimiter)
    header = _header(name, reader)
    known = set(REQUIRED_COLUMNS) | set(OPTIONAL_COLUMNS)
    rows: list[PartyRow] = []
    refused: list[RefusedRow] = []
    named: dict[str, PartyRow] = {}
    for line, fields in _records(lines, delimiter, start=reader.line_num):
        try:
            row = _party_row(line, _named_fields(header, fields))
            _refuse_second_name(row, named)
            rows.append(row)
        except ValueError as error:
            refused.append(RefusedRow(line, str(error)))
    ignored = tuple(column for column in header if column not in known)
    return PartyFile(tuple(rows), tuple(refused), ignored)


def _refuse_second_name(row: PartyRow, named: dict[str, PartyRow]) -> None:
    """Refuses a row that gives a party another name than a row above it: loaded again, the file would rename it twice.

    Args:
        named: id -> the first row that has it; this one is added.
    """
    if row.id is None:
        return
    first = named.setdefault(row.id, row)
    if first.key.name != row.key.name:
        raise ValueError(f"id: {row.id!r} is called {first.key.name!r} in line {first.line}")


def _reader(lines: Sequence[str], delimiter: str, *, start: int = 0) -> CsvReader:
    return csv.reader((lines[at] for at in range(start, len(lines))), delimiter=delimiter, strict=True)


def _refuse_foreign_bytes(fields: Iterable[str]) -> None:
    for field in fields:
        if (half := _HALF.search(field)) is not None:
            raise ValueError(f"it is not UTF-8 (byte 0x{ord(half[0]) - _HALVES:02x}); save the file as UTF-8")


def _header(name: str, reader: CsvReader) -> list[str]:
    try:
        fields = next(reader)
        _refuse_foreign_bytes(fields)
    except StopIteration:
        fields = []
    except csv.Error as error:
        message = f"{name}: the first line names no columns, as that of a CSV file of parties does: {error}"
        raise PartiesUnreadable(message) from error
    except ValueError as error:
        raise PartiesUnreadable(f"{name}: line 1: {error}") from None
    header = ["_".join(field.lower().replace("-", " ").replace("_", " ").split()) for field in fields]
    if not any(header):
        raise PartiesUnreadable(f"{name}: the first line must name the columns; it is empty")
    missing = [column for column in REQUIRED_COLUMNS if column not in header]
    if missing:
        columns = " and ".join(missing)
        has = ", ".join(header)
        shown = has if len(has) <= _HEADER_SHOWN and has.isprintable() else "something else"
        raise PartiesUnreadable(
            f"{name}: the column {columns} is missing; the first line of a CSV file of parties names its columns, such "
            f"as name, kind, jurisdiction; it has {shown}"
        )
    repeated = [column for column, count in Counter(header).items() if count > 1]
    if repeated:
        raise PartiesUnreadable(f"{name}: the column {', '.join(repeated)} is there more than once")
    return header


def _records(lines: Sequence[str], delimiter: str, *, start: int) -> Iterator[tuple[int, list[str] | csv.Error]]:
    """Yields each record that is not blank with its first line; one that is no CSV yields its error.

    Behind one of several lines that is no CSV the next begins with its second line: a quote that is not closed would
    take all that follows with it.

    Args:
        start: lines that are left out.
    """
    reader = _reader(lines, delimiter, start=start)
    while True:
        line = start + reader.line_num + 1
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield line, error
            if start + reader.line_num > line:
                start = line
                reader = _reader(lines, delimiter, start=start)
            continue
        if any(field.strip() for field in fields):
            yield line, fields


def _named_fields(header: list[str], fields: list[str] | csv.Error) -> dict[str, str]:
    if isinstance(fields, csv.Error):
        what = "a quote in it is never closed" if str(fields) == _NOT_CLOSED else str(fields)
        raise ValueError(f"the row is no valid CSV: {what}")
    _refuse_foreign_bytes(fields)
    if len(fields) != len(header):
        raise ValueError(f"the row has {len(fields)} fields, the header has {len(header)}")
    return {column: field.strip() for column, field in zip(header, fields, strict=True)}


def _party_row(line: int, fields: Mapping[str, str]) -> PartyRow:
    kind = _kind(fields["kind"])
    jurisdiction, client_type, lei = (fields.get(name, "") for name in ("jurisdiction", "client_type", "lei"))
    if client_type and kind is not PartyKind.FUND:
        raise ValueError(f"client_type: only a fund has one, not a {kind}")
    if lei and kind is PartyKind.PERSON:
        raise ValueError("lei: a person has none")
    party_id = fields.get("id") or None
    if party_id is not None and not is_id(party_id):
        raise ValueError(f"id: {party_id[:80]!r} may hold only letters, digits and _ . : - and at most 64 of them")
    if party_id is not None and (other := _other_kind_of(party_id, kind)) is not None:
        raise ValueError(f"id: {party_id!r} is written as that of a {other}, and this is a {kind}")
    return PartyRow(
        line=line,
        key=NaturalKey(
            kind,
            _name(fields["name"], "the name"),
            jurisdiction_of(jurisdiction) if jurisdiction else "",
            _born(fields.get("born", ""), kind),
        ),
        id=party_id,
        client_type=checked_client_type(client_type or "fund") if kind is PartyKind.FUND else "",
        aliases=_names(fields.get("aliases", ""), "an alias"),
        former_names=_names(fields.get("former_names", ""), "a former name"),
        lei=checked_lei(identifier_key(lei)) if lei else None,
        status=_status(fields.get("status", "")),
    )


def _other_kind_of(party_id: str, kind: PartyKind) -> PartyKind | None:
    return next((other for other in PartyKind if other is not kind and party_id.startswith(f"{other}_")), None)


def _kind(text: str) -> PartyKind:
    try:
        kind = kind_of_entity_type(text) if text else None
    except UnknownEntityType:
        # What it lists is for lookups, and not all of it is a kind of parties.
        kind = None
    if kind is None:
        kinds = ", ".join(PartyKind)
        raise ValueError(f"kind: expected {kinds}, got {text!r}{nearest(text.lower(), PartyKind) if text else ''}")
    return kind


def _born(text: str, kind: PartyKind) -> str:
    if not text:
        return ""
    if kind is not PartyKind.PERSON:
        raise ValueError(f"born: only a person has a date of birth, not a {kind}")
    return checked_date_of_birth(text, "born")


def _names(text: str, what: str) -> tuple[str, ...]:
    return tuple(_name(name, what) for name in text.split("|") if name.strip())


def _name(text: str, what: str) -> str:
    name = clean_name(text, what)
    # What a plan may not call anybody, no file may either.
    check_name(" ".join(text.split()))
    return name


def _status(text: str) -> PartyStatus | None:
    if not text:
        return None
    if text.lower() not in list(PartyStatus):
        statuses = ", ".join(PartyStatus)
        raise ValueError(f"status: expected {statuses}, got {text!r}{nearest(text.lower(), PartyStatus)}")
    return PartyStatus(text.lower())
