"""`make demo`: onboards a fund in six steps on a real Temporal server, and shows what that did to the database.

Run it again and it changes nothing. Kill it in the middle and the next start goes on with the same run. Each step is
made to take a moment here, so that there is something to see and to kill; `--pace 0` leaves that out.
"""

import argparse
import functools
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from dagwright.client.runs import Runs, open_runs
from dagwright.client.starts import StartRequest
from dagwright.interfaces.cli.async_runs import Farewell, run_async
from dagwright.interfaces.cli.connecting import command_settings
from dagwright.interfaces.cli.edge import guarded, leave
from dagwright.interfaces.cli.exits import ExitCode
from dagwright.interfaces.cli.output import Output
from dagwright.interfaces.cli.preparing import prepare_run
from dagwright.interfaces.cli.requests import RunRequest
from dagwright.interfaces.cli.running import Followed, Showing, follow_to_end, tell_run
from dagwright.server import LocalServer, open_connection
from dagwright.settings import Settings, load_settings
from dagwright.tools import ToolRegistry, ToolSpec
from dagwright.toolset.toolset import Toolset, load_toolset
from dagwright_onboarding.database import EntityDatabase
from dagwright_onboarding.loading import load_parties
from dagwright_onboarding.onboarding import onboarding_tools
from dagwright_onboarding.overview import Overview, changed_rows, read_overview

FOLDER = Path(__file__).parent / "onboarding"
ID_PREFIX = "onboarding-demo-"
PACE_S = 1.5
RUNS_LOOKED_AT = 1000


def demo(output: Output, *, pace_s: float) -> int:
    """Loads the parties, runs the plan, shows the rows that are new, and returns the exit code of the run."""
    settings = command_settings()
    toolset = _paced(load_toolset(settings), pace_s=pace_s)
    database = EntityDatabase(settings.database_url)
    load_parties(database, FOLDER / "parties.csv")
    before = read_overview(database)
    output.say(f"database {settings.database_url}\nbefore: {_counts(before)}")
    prepared = prepare_run(RunRequest(plan=str(FOLDER / "full.json")), toolset, output)
    code = run_async(lambda farewell: _run(prepared, settings, toolset, output=output, farewell=farewell), output)
    if code != ExitCode.INTERRUPTED:
        _tell_changes(before, read_overview(database), output)
        output.say("the server keeps running for its UI; `.venv/bin/python starter.py down` ends it")
    return code


async def _run(
    prepared: StartRequest, settings: Settings, toolset: Toolset, *, output: Output, farewell: Farewell
) -> int:
    async with open_connection(settings) as connection:
        # The server stays, so that the link to its UI leads somewhere afterwards.
        LocalServer(settings).keep()
        runs = open_runs(connection, settings)
        workflow_id = await choose_id(runs, ID_PREFIX)
        farewell.text = f"the run {workflow_id} stays where it is; the next start of the demo goes on with it"
        start = StartRequest(prepared.plan, None, prepared.inputs, workflow_id=workflow_id, title="Onboard a fund")
        started = await runs.start(start)
        words = "" if started.is_new else " was interrupted and goes on from where it was"
        showing = Showing(tell_run, output, way_out=farewell.way_out)
        followed = Followed(workflow_id, words, started.is_new)
        return await follow_to_end(followed, connection, settings, toolset=toolset, showing=showing)


async def choose_id(runs: Runs, prefix: str) -> str:
    """Returns the id of the demo that was interrupted, else a new one: the prefix with a number behind it."""
    numbers = {}
    for run in await runs.list_runs(limit=RUNS_LOOKED_AT):
        number = run.run_id.removeprefix(prefix)
        if number != run.run_id and number.isdecimal():
            numbers[int(number)] = run.ended_at is not None
    newest = max(numbers, default=0)
    return f"{prefix}{newest + 1 if numbers.get(newest, True) else newest}"


def _paced(toolset: Toolset, *, pace_s: float) -> Toolset:
    """Returns the same tools with onboarding verbs that take their time; what they are to a plan stays the same."""
    verbs = [_slowed(spec, pace_s) for spec in ToolRegistry.of(*onboarding_tools(toolset.database_url))]
    return replace(toolset, built_in=toolset.built_in.merged(ToolRegistry.of(*verbs)))


def _slowed(spec: ToolSpec, pace_s: float) -> ToolSpec:
    function = spec.function
    assert function is not None

    @functools.wraps(function)
    def slow(*positional: Any, **named: Any) -> Any:
        time.sleep(pace_s)
        return function(*positional, **named)

    return replace(spec, function=slow)


def _counts(overview: Overview) -> str:
    return ", ".join(f"{sort.value} {count}" for sort, count in overview.counts.items())


def _tell_changes(before: Overview, after: Overview, output: Output) -> None:
    changes = changed_rows(before, after)
    output.say(f"after:  {_counts(after)}")
    if not changes:
        output.say("nothing changed: every step found its work done already")
        return
    table = Table(title="rows that are new", title_justify="left", box=None, show_header=False, padding=(0, 2, 0, 0))
    for changed in changes:
        row = changed.row
        table.add_row(changed.change.value, row.sort.value, Text(row.subject), Text(row.detail))
    output.show(table)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the demo and exits with the code of its run."""
    parser = argparse.ArgumentParser(description="Onboards a fund in six steps on a real Temporal server.")
    parser.add_argument("--pace", type=float, default=PACE_S, help="seconds that each step takes longer")
    pace_s = parser.parse_args(arguments).pace
    output = Output()
    leave(guarded(lambda: demo(output, pace_s=pace_s), output, settings=load_settings))


if __name__ == "__main__":
    main()
