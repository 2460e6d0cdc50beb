"""Read a CSV file of parties into validated rows, each with its line number.

The columns `name` and `kind` (`person`, `company`, `fund`) are required; `id`, `jurisdiction`, `client_type`,
`aliases` and `former_names` (separated by `|`), `lei`, `date_of_birth` (YYYY-MM-DD) and `status` (`active`,
`inactive`) are optional. Empty fields change nothing: a party keeps its status, and a new party is active.
The file is UTF-8, with or without a byte order mark. Fields are separated by commas or semicolons, and quoted where
needed.
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
    kind_of_entity_type,
    nearest_hint,
    validate_client_type,
    validate_date_of_birth,
    validate_lei,
)
from dagwright_onboarding.models import PartyStatus
from dagwright_onboarding.names import clean_name, identifier_key
from dagwright_onboarding.parties import NaturalKey, is_id
from dagwright_onboarding.text_formats import check_name, parse_jurisdiction

REQUIRED_COLUMNS = ("name", "kind")
OPTIONAL_COLUMNS = (
    *("id", "jurisdiction", "client_type", "aliases", "former_names", "lei", "date_of_birth", "status"),
)

_HEADER_CHARACTERS = 200
"""Maximum length of a header that a message quotes; the first line of a file of another type may be long."""


_SURROGATE_BASE = 0xDC00
_INVALID_BYTE = re.compile("[\udc80-\udcff]")
"""A byte that is not UTF-8, as decoded by `surrogateescape`: `_SURROGATE_BASE` plus the byte."""
_UNCLOSED_QUOTE_MESSAGE = "unexpected end of data"
"""Message of `csv.reader` for a quote that is still open at the end of the file."""


class CsvReader(Protocol):
    """The type that `csv.reader` returns; its class has no public name."""

    line_num: int

    def __next__(self) -> list[str]: ...


class PartiesUnreadable(ValueError):
    """The file as a whole cannot be used; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class PartyRow:
    """A validated row.

    Args:
        line: line of the file on which the row starts, 1 for the first.
        status: `None` if the field is empty.
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
class RejectedRow:
    """A skipped row, with the reason."""

    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class PartyFile:
    """The content of a file, in line order."""

    rows: tuple[PartyRow, ...]
    rejected: tuple[RejectedRow, ...]
    ignored_columns: tuple[str, ...]


def read_party_file(path: Path) -> PartyFile:
    """Return the valid and the rejected rows of a file.

    Raises:
        PartiesUnreadable: no such file, no header, or a missing or duplicate column.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise PartiesUnreadable(f"{path}: {error.strerror or error}") from error
    return read_parties(content, name=str(path))


def read_parties(content: bytes, *, name: str) -> PartyFile:
    """Return the valid and the rejected rows in the content of a file.

    Args:
        name: name of the file in messages.

    Raises:
        PartiesUnreadable: no header, or a missing or duplicate column.
    """
    # Invalid bytes are decoded into surrogates, so that only the rows with such bytes are rejected.
    lines = list(io.StringIO(content.decode("utf-8-sig", errors="surrogateescape"), newline=""))
    delimiter = ";" if lines and lines[0].count(";") > lines[0].count(",") else ","
    reader = _reader(lines, delimiter)
    header = _read_header(name, reader)
    known_columns = set(REQUIRED_COLUMNS) | set(OPTIONAL_COLUMNS)
    rows: list[PartyRow] = []
    rejected_rows: list[RejectedRow] = []
    rows_by_id: dict[str, PartyRow] = {}
    for line, fields in _records(lines, delimiter, start=reader.line_num):
        try:
            row = _party_row(line, _named_fields(header, fields))
            _check_single_name(row, rows_by_id)
            rows.append(row)
        except ValueError as error:
            rejected_rows.append(RejectedRow(line, str(error)))
    ignored_columns = tuple(column for column in header if column not in known_columns)
    return PartyFile(tuple(rows), tuple(rejected_rows), ignored_columns)


def _check_single_name(row: PartyRow, rows_by_id: dict[str, PartyRow]) -> None:
    """Check that no earlier row gives the party another name; otherwise each load would rename the party twice.

    Args:
        rows_by_id: id -> the first row with the id; `row` is added.
    """
    if row.id is None:
        return
    first_row = rows_by_id.setdefault(row.id, row)
    if first_row.key.name != row.key.name:
        raise ValueError(f"id: {row.id!r} is called {first_row.key.name!r} in line {first_row.line}")


def _reader(lines: Sequence[str], delimiter: str, *, start: int = 0) -> CsvReader:
    return csv.reader((lines[position] for position in range(start, len(lines))), delimiter=delimiter, strict=True)


def _check_utf8(fields: Iterable[str]) -> None:
    for field in fields:
        if (invalid_byte := _INVALID_BYTE.search(field)) is not None:
            raise ValueError(f"not UTF-8 (byte 0x{ord(invalid_byte[0]) - _SURROGATE_BASE:02x}); save the file as UTF-8")


def _read_header(name: str, reader: CsvReader) -> list[str]:
    try:
        fields = next(reader)
        _check_utf8(fields)
    except StopIteration:
        fields = []
    except csv.Error as error:
        message = f"{name}: the first line must name the columns of a CSV file of parties: {error}"
        raise PartiesUnreadable(message) from error
    except ValueError as error:
        raise PartiesUnreadable(f"{name}: line 1: {error}") from None
    header = ["_".join(field.lower().replace("-", " ").replace("_", " ").split()) for field in fields]
    if not any(header):
        raise PartiesUnreadable(f"{name}: the first line must name the columns; it is empty")
    missing_columns = [column for column in REQUIRED_COLUMNS if column not in header]
    if missing_columns:
        columns = f"column{'s' if len(missing_columns) > 1 else ''} {' and '.join(missing_columns)}"
        verb = "are" if len(missing_columns) > 1 else "is"
        header_list = ", ".join(header)
        is_quotable = len(header_list) <= _HEADER_CHARACTERS and header_list.isprintable()
        header_text = header_list if is_quotable else "something else"
        raise PartiesUnreadable(
            f"{name}: the {columns} {verb} missing; the first line of a CSV file of parties names its columns, such "
            f"as name, kind, jurisdiction; this line has {header_text}"
        )
    duplicate_columns = [column for column, count in Counter(header).items() if count > 1]
    if duplicate_columns:
        raise PartiesUnreadable(f"{name}: duplicate column {', '.join(duplicate_columns)}")
    return header


def _records(lines: Sequence[str], delimiter: str, *, start: int) -> Iterator[tuple[int, list[str] | csv.Error]]:
    """Yield each non-empty record with the number of its first line, or the error if the record is invalid CSV.

    After an invalid record of several lines, reading continues at its second line: an unclosed quote would otherwise
    swallow the rest of the file.

    Args:
        start: number of lines to skip.
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
        problem = "unclosed quote" if str(fields) == _UNCLOSED_QUOTE_MESSAGE else str(fields)
        raise ValueError(f"invalid CSV: {problem}")
    _check_utf8(fields)
    if len(fields) != len(header):
        raise ValueError(f"the row has {len(fields)} fields, the header has {len(header)}")
    return {column: field.strip() for column, field in zip(header, fields, strict=True)}


def _party_row(line: int, fields: Mapping[str, str]) -> PartyRow:
    kind = _parse_kind(fields["kind"])
    jurisdiction, client_type, lei = (fields.get(name, "") for name in ("jurisdiction", "client_type", "lei"))
    if client_type and kind is not PartyKind.FUND:
        raise ValueError(f"client_type: only a fund has a client type, not a {kind}")
    if lei and kind is PartyKind.PERSON:
        raise ValueError("lei: a person cannot have a LEI")
    party_id = fields.get("id") or None
    if party_id is not None and not is_id(party_id):
        raise ValueError(f"id: {party_id[:80]!r} must have 1 to 64 letters, digits or characters of _ . : -")
    if party_id is not None and (other_kind := _other_kind_of_prefix(party_id, kind)) is not None:
        raise ValueError(f"id: {party_id!r} has the prefix of a {other_kind}, but the row is a {kind}")
    return PartyRow(
        line=line,
        key=NaturalKey(
            kind,
            _parse_name(fields["name"], "the name"),
            parse_jurisdiction(jurisdiction) if jurisdiction else "",
            _validate_birth_field(fields.get("date_of_birth", ""), kind),
        ),
        id=party_id,
        client_type=validate_client_type(client_type or "fund") if kind is PartyKind.FUND else "",
        aliases=_parse_names(fields.get("aliases", ""), "an alias"),
        former_names=_parse_names(fields.get("former_names", ""), "a former name"),
        lei=validate_lei(identifier_key(lei)) if lei else None,
        status=_parse_status(fields.get("status", "")),
    )


def _other_kind_of_prefix(party_id: str, kind: PartyKind) -> PartyKind | None:
    """Return the kind that the prefix of an ID names; `None` if the ID has no such prefix, or the prefix of `kind`."""
    return next(
        (other_kind for other_kind in PartyKind if other_kind is not kind and party_id.startswith(f"{other_kind}_")),
        None,
    )


def _parse_kind(text: str) -> PartyKind:
    try:
        kind = kind_of_entity_type(text) if text else None
    except UnknownEntityType:
        # The error lists the entity types of lookups, not all of which are party kinds.
        kind = None
    if kind is None:
        kinds = ", ".join(PartyKind)
        raise ValueError(f"kind: expected {kinds}, got {text!r}{nearest_hint(text.lower(), PartyKind) if text else ''}")
    return kind


def _validate_birth_field(text: str, kind: PartyKind) -> str:
    if not text:
        return ""
    if kind is not PartyKind.PERSON:
        raise ValueError(f"date_of_birth: only a person has a date of birth, not a {kind}")
    return validate_date_of_birth(text, "date_of_birth")


def _parse_names(text: str, column: str) -> tuple[str, ...]:
    return tuple(_parse_name(name, column) for name in text.split("|") if name.strip())


def _parse_name(text: str, column: str) -> str:
    """Parse a name.

    Args:
        column: the name in messages, such as "an alias".
    """
    name = clean_name(text, column)
    # A name in a file must also be valid in a plan.
    check_name(" ".join(text.split()))
    return name


def _parse_status(text: str) -> PartyStatus | None:
    if not text:
        return None
    if text.lower() not in list(PartyStatus):
        statuses = ", ".join(PartyStatus)
        raise ValueError(f"status: expected {statuses}, got {text!r}{nearest_hint(text.lower(), PartyStatus)}")
    return PartyStatus(text.lower())
