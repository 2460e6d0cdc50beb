"""`entities load`: brings parties in from a CSV file. Needs no server and no Temporal."""

from dataclasses import asdict
from pathlib import Path

from dagwright.cli.databases import opened_database
from dagwright.cli.exits import ExitCode
from dagwright.cli.output import Output, one_line
from dagwright.entities.loading import LoadReport, load_parties

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


def _tell(report: LoadReport, file: str, output: Output) -> None:
    output.say(f"{file}: {report.added} added, {report.updated} updated, {report.unchanged} unchanged")
    if report.ignored_columns:
        output.say(f"columns that mean nothing here: {', '.join(report.ignored_columns)}")
    for row in report.refused[:REFUSALS_SHOWN]:
        output.tell(f"{file}, line {row.line}: refused: {one_line(row.reason)}")
    if len(report.refused) > REFUSALS_SHOWN:
        output.tell(f"{file}: and {len(report.refused) - REFUSALS_SHOWN} more rows were refused")
