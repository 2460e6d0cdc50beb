"""`entities load`, `find` and `migrate`: commands for the parties in the database. They need no Temporal server."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from dagwright.plugins.commands import STANDARD_INPUT, CommandError, CommandErrorCode, ExitCode, Output, one_line
from dagwright.plugins.databases import open_database
from dagwright_onboarding.database import PARTIES, EntityDatabase
from dagwright_onboarding.gateway import EntityGateway
from dagwright_onboarding.load_progress import report_load_progress
from dagwright_onboarding.lookup import Candidate, Findings
from dagwright_onboarding.party_file import PartiesUnreadable, read_parties
from dagwright_onboarding.party_loading import LoadReport, load_parties, load_party_file
from dagwright_onboarding.resolution import describe_candidate

MAX_LISTED_REJECTIONS = MAX_LISTED_DUPLICATES = MAX_LISTED_RENAMES = 50


def load(file: str, output: Output) -> int:
    """Load the parties of a file, or of standard input (`-`), and print a report; return 1 if rows were rejected."""
    name = "standard input" if file == STANDARD_INPUT else file
    try:
        with open_database(EntityDatabase) as database, report_load_progress(output) as on_progress:
            if file == STANDARD_INPUT:
                report = load_party_file(
                    database, read_parties(sys.stdin.buffer.read(), name=name), on_progress=on_progress
                )
            else:
                report = load_parties(database, Path(file), on_progress=on_progress)
    except PartiesUnreadable as error:
        raise CommandError(one_line(str(error), limit=500), code=CommandErrorCode.UNREADABLE) from error
    if output.is_json:
        output.document({"status": "loaded", "file": file, **asdict(report)})
    else:
        _print_load_report(report, name, output)
    return ExitCode.FAILED if report.rejected else ExitCode.COMPLETED


def find(search: tuple[str, str, str | None], output: Output) -> int:
    """Show the result of a lookup; return 1 if the lookup would ask which party is meant.

    Args:
        search: search text, entity type and jurisdiction.

    Raises:
        CommandError: the database does not exist; this command does not create the database.
    """
    search_text, entity_type, jurisdiction = search
    with open_database(EntityDatabase) as database:
        if (missing_file := database.missing_sqlite_file()) is not None:
            message = (
                f"no database at {missing_file} (DAGWRIGHT_DATABASE_URL); `dagwright entities load FILE` creates it"
            )
            raise CommandError(one_line(message, limit=500), code=CommandErrorCode.DATABASE_UNAVAILABLE)
        try:
            findings = EntityGateway(database).find(search_text, entity_type, jurisdiction=jurisdiction)
        except ValueError as error:
            raise CommandError(f"{error}") from None
    if output.is_json:
        output.document(asdict(findings))
    else:
        _print_findings(findings, output)
    return ExitCode.COMPLETED if findings.unambiguous_match is not None else ExitCode.FAILED


def migrate(_: None, output: Output) -> int:
    """Migrate the database to this version, index all names, and print the result."""
    with open_database(EntityDatabase) as database:
        added_count = database.index_missing_names()
    revision = PARTIES.newest_revision
    message = f"the database is at revision {revision}; {added_count:,} missing names were added to the search index"
    if output.is_json:
        output.document({"status": "migrated", "revision": revision, "names_added": added_count})
    else:
        output.print(message)
    return ExitCode.COMPLETED


def _print_findings(findings: Findings, output: Output) -> None:
    if not findings.hits:
        output.print("no match" + ("; near matches:" if findings.near_matches else ""))
    _show(findings.hits or findings.near_matches, output)
    if findings.inactive_matches:
        output.print("inactive, not found by lookups:")
        _show(findings.inactive_matches, output)
    if len(findings.hits) == 1 and findings.unambiguous_match is None:
        output.print("a lookup would ask for confirmation")


def _show(candidates: Sequence[Candidate], output: Output) -> None:
    for candidate in candidates:
        output.print(one_line(f"{describe_candidate(candidate)}: {candidate.reason}; id {candidate.id}", limit=1000))


def _print_load_report(report: LoadReport, file: str, output: Output) -> None:
    rejected_note = f", {len(report.rejected):,} rejected" if report.rejected else ""
    output.print(f"{file}: {report.added} added, {report.updated} updated, {report.unchanged} unchanged{rejected_note}")
    if report.still_inactive:
        output.print(
            f"inactive parties that stay inactive, because their rows have no status: {report.still_inactive:,}"
        )
    for row in report.renamed[:MAX_LISTED_RENAMES]:
        output.print(one_line(f"{file}, line {row.line}: {row.party} was renamed from {row.before!r}", limit=1000))
    if len(report.renamed) > MAX_LISTED_RENAMES:
        output.print(f"{file}: and {len(report.renamed) - MAX_LISTED_RENAMES:,} more parties were renamed")
    renamed_lines = {row.line for row in report.renamed}
    for duplicate in report.duplicates[:MAX_LISTED_DUPLICATES]:
        change = "renamed to the name of" if duplicate.line in renamed_lines else "added next to"
        output.log(
            f"{file}, line {duplicate.line}: {change} {one_line(duplicate.other)}; possible duplicate, lookups will ask"
        )
    if len(report.duplicates) > MAX_LISTED_DUPLICATES:
        output.log(f"{file}: and {len(report.duplicates) - MAX_LISTED_DUPLICATES} more possible duplicates")
    if report.ignored_columns:
        output.print(f"ignored columns: {', '.join(report.ignored_columns)}")
    for rejected_row in report.rejected[:MAX_LISTED_REJECTIONS]:
        output.log(f"{file}, line {rejected_row.line}: rejected: {one_line(rejected_row.reason)}")
    if len(report.rejected) > MAX_LISTED_REJECTIONS:
        output.log(f"{file}: and {len(report.rejected) - MAX_LISTED_REJECTIONS} more rows were rejected")
