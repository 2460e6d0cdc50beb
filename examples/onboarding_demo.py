"""`make demo-intents`: onboard a fund in six steps on a real Temporal server, and show the changes in the database.

A second run changes nothing. If you kill the demo, the next start continues the same run. Each step is slowed down, so
that there is time to watch the demo and to kill it; `--pace 0` disables this.
"""

import argparse
import functools
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from dagwright import RunResult, SyncClient
from dagwright.plugins.commands import ExitCode, Output, end_process, exit_code_of, run_guarded
from dagwright.settings import Settings, load_settings
from dagwright.tools import ToolRegistry, ToolSpec
from dagwright_onboarding.database import EntityDatabase
from dagwright_onboarding.onboarding import onboarding_tools
from dagwright_onboarding.overview import Overview, changed_rows, read_overview
from dagwright_onboarding.party_loading import load_parties
from examples.command_line import choose_id

FOLDER = Path(__file__).parent / "onboarding"
ID_PREFIX = "onboarding-demo-"
PACE_S = 1.5


def demo(output: Output, *, pace_s: float) -> int:
    """Load the parties, run the plan, show the new rows, and return the exit code of the run."""
    settings = load_settings()
    database = EntityDatabase(settings.database_url)
    load_parties(database, FOLDER / "parties.csv")
    overview_before = read_overview(database)
    output.print(f"database {settings.database_url}\nbefore: {_counts_text(overview_before)}")
    result = _run(settings, output, pace_s=pace_s)
    if result is None:
        return ExitCode.INTERRUPTED
    _show_result(result, output)
    _show_changes(overview_before, read_overview(database), output)
    output.print("the server keeps running for its UI; `.venv/bin/python starter.py down` stops it")
    return exit_code_of(result.status)


def _run(settings: Settings, output: Output, *, pace_s: float) -> RunResult | None:
    """Run the plan and return its result; `None` if Ctrl-C interrupts it."""
    if "log_level" not in settings.model_fields_set:
        settings = settings.model_copy(update={"log_level": "error"})
    verbs = [_slow_down(spec, pace_s) for spec in ToolRegistry.of(*onboarding_tools(settings.database_url))]
    # The server keeps running, so that the link to its UI works afterwards.
    with SyncClient.connect(settings=settings, keep_server=True) as client, client.worker(tools=verbs):
        run = client.start(FOLDER / "full.json", run_id=choose_id(client, ID_PREFIX, output), title="Onboard a fund")
        if (url := run.ui_url()) is not None:
            output.print(f"Temporal UI: {url}")
        try:
            return run.watch(raise_on_failure=False)
        except KeyboardInterrupt:
            output.log(f"run {run.id} is interrupted; the next start of the demo continues it")
            return None


def _slow_down(spec: ToolSpec, pace_s: float) -> ToolSpec:
    function = spec.function
    assert function is not None

    @functools.wraps(function)
    def slow_function(*positional_arguments: Any, **named_arguments: Any) -> Any:
        time.sleep(pace_s)
        return function(*positional_arguments, **named_arguments)

    return replace(spec, function=slow_function)


def _show_result(result: RunResult, output: Output) -> None:
    assert result.started_at is not None
    assert result.ended_at is not None
    duration_s = (result.ended_at - result.started_at).total_seconds()
    output.print(f"{result.run_id}: {result.status.replace('_', ' ')} in {duration_s:.1f} s")
    for failure in result.failures:
        output.print(f"failed: {failure}")
    if result.output is not None:
        output.print(json.dumps(result.output, ensure_ascii=False, indent=2))


def _counts_text(overview: Overview) -> str:
    return ", ".join(f"{kind.value} {count}" for kind, count in overview.counts.items())


def _show_changes(before: Overview, after: Overview, output: Output) -> None:
    changes = changed_rows(before, after)
    output.print(f"after:  {_counts_text(after)}")
    if not changes:
        output.print("nothing changed: every step was already done")
        return
    table = Table(title="new rows", title_justify="left", box=None, show_header=False, padding=(0, 2, 0, 0))
    for changed_row in changes:
        row = changed_row.row
        table.add_row(changed_row.change.value, row.kind.value, Text(row.subject), Text(row.detail))
    output.show(table)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the demo and exit with the code of its run."""
    parser = argparse.ArgumentParser(description="Onboards a fund in six steps on a real Temporal server.")
    parser.add_argument("--pace", type=float, default=PACE_S, help="seconds by which each step is delayed")
    pace_s = parser.parse_args(arguments).pace
    output = Output()
    end_process(run_guarded(lambda: demo(output, pace_s=pace_s), output, load_settings=load_settings))


if __name__ == "__main__":
    main()
