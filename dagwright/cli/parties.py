"""`entities load`, `find` and `migrate`: the parties in the database. Needs no server and no Temporal."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from dagwright.cli.databases import opened_database
from dagwright.cli.exits import CommandRefused, ExitCode
from dagwright.cli.output import Output, one_line
from dagwright.entities.gateway import SqlEntityGateway
from dagwright.entities.loading import LoadReport, load_parties
from dagwright.entities.lookup import Candidate
from dagwright.entities.migrating import REVISIONS

REFUSALS_SHOWN = 50


def load(file: str, output: Output) -> int:
    """Loads the parties of a file and says what came of its rows; 1 if some were refused."""
    with opened_database() as database:
        report = load_parties(database, Path(file))
    if output.is_json:
        output.document({"status": "loaded", "file": file, **asdict(report)})
    else:
        _tell(report, file, output)
    return ExitCode.FAILED if report.refused else ExitCode.COMPLETED


def find(asked: tuple[str, str, str | None], output: Output) -> int:
    """Shows what a lookup finds; 1 if it finds none or several.

    Args:
        asked: search text, entity type and jurisdiction.
    """
    search_text, entity_type, jurisdiction = asked
    with opened_database() as database:
        try:
            findings = SqlEntityGateway(database).find(search_text, entity_type, jurisdiction=jurisdiction)
        except ValueError as error:
            raise CommandRefused(f"{error}") from None
    if output.is_json:
        output.document(asdict(findings))
    elif findings.hits:
        _show(findings.hits, output)
    else:
        output.say("nothing is found" + ("; near:" if findings.near else ""))
        _show(findings.near, output)
    return ExitCode.COMPLETED if len(findings.hits) == 1 else ExitCode.FAILED


def migrate(_: None, output: Output) -> int:
    """Brings the database to this version and all names into the index, and says so."""
    with opened_database() as database:
        added = database.bring_in_names()
    message = f"the database is of revision {REVISIONS[-1]}; {added:,} names were not in the search index and are now"
    if output.is_json:
        output.document({"status": "migrated", "revision": REVISIONS[-1], "names_added": added})
    else:
        output.say(message)
    return ExitCode.COMPLETED


def _show(candidates: Sequence[Candidate], output: Output) -> None:
    for found in candidates:
        numbers = [f"{each.scheme} {each.value}" for each in found.identifiers]
        told = ", ".join([found.kind, found.jurisdiction or "jurisdiction not known", *numbers, *found.roles])
        output.say(one_line(f"{found.name} ({told}): {found.reason}; id {found.id}", limit=1000))


def _tell(report: LoadReport, file: str, output: Output) -> None:
    refused = f", {len(report.refused):,} refused" if report.refused else ""
    output.say(f"{file}: {report.added} added, {report.updated} updated, {report.unchanged} unchanged{refused}")
    if report.ignored_columns:
        output.say(f"columns that mean nothing here: {', '.join(report.ignored_columns)}")
    for row in report.refused[:REFUSALS_SHOWN]:
        output.tell(f"{file}, line {row.line}: refused: {one_line(row.reason)}")
    if len(report.refused) > REFUSALS_SHOWN:
        output.tell(f"{file}: and {len(report.refused) - REFUSALS_SHOWN} more rows were refused")
