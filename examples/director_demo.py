"""`make demo-onboarding`: onboards a fund whose director could be two people, and shows what is in the store then.

Which of the two is asked once, and answered from a second terminal. Where nobody sits at this one, a second process
gives the first answer that is offered.
"""

import asyncio
import shlex
import sys
from functools import partial
from pathlib import Path

from rich.table import Table
from rich.text import Text

from dagwright.client.feedback import requests_in
from dagwright.client.runs import Runs, open_runs
from dagwright.client.starts import StartRequest
from dagwright.interfaces.cli.async_runs import Farewell, run_async
from dagwright.interfaces.cli.connecting import command_settings
from dagwright.interfaces.cli.edge import guarded, leave
from dagwright.interfaces.cli.exits import ExitCode
from dagwright.interfaces.cli.output import Output
from dagwright.interfaces.cli.preparing import prepare_run
from dagwright.interfaces.cli.request_words import asking_line, command_for, field_lines
from dagwright.interfaces.cli.requests import RunRequest
from dagwright.interfaces.cli.running import Followed, Showing, follow_to_end, tell_run
from dagwright.server import open_connection
from dagwright.settings import Settings, load_settings
from dagwright.toolset.toolset import Toolset, load_toolset
from dagwright_onboarding.database import EntityDatabase
from dagwright_onboarding.overview import read_overview
from examples.onboarding_demo import choose_id

PLAN = Path(__file__).parent / "onboarding" / "which_director.json"
ID_PREFIX = "which-director-"


def demo(output: Output) -> int:
    """Runs the plan, shows what the store has of the new fund, and returns the exit code of the run."""
    settings = command_settings()
    toolset = load_toolset(settings)
    prepared = prepare_run(RunRequest(plan=str(PLAN)), toolset, output)
    code = run_async(partial(_run, prepared, settings, toolset, output), output)
    if code != ExitCode.INTERRUPTED:
        _tell_store(EntityDatabase(settings.database_url), output)
    return code


async def _run(prepared: StartRequest, settings: Settings, toolset: Toolset, output: Output, farewell: Farewell) -> int:
    async with open_connection(settings) as connection:
        runs = open_runs(connection, settings)
        workflow_id = await choose_id(runs, ID_PREFIX)
        farewell.text = f"the run {workflow_id} stays where it is; the next start of the demo goes on with it"
        title = "Onboard a fund with one of two directors"
        start = StartRequest(prepared.plan, None, prepared.inputs, workflow_id=workflow_id, title=title)
        started = await runs.start(start)
        words = "" if started.is_new else " was interrupted and goes on from where it was"
        meanwhile = None if output.can_ask else _answer_elsewhere
        showing = Showing(tell_run, output, meanwhile, farewell.way_out)
        followed = Followed(workflow_id, words, started.is_new)
        return await follow_to_end(followed, connection, settings, toolset=toolset, showing=showing)


async def _answer_elsewhere(runs: Runs, workflow_id: str, output: Output) -> None:
    """Answers what the run asks first, as somebody at a second terminal would."""
    async for view in runs.feed(workflow_id).follow():
        if asked := requests_in(view):
            command = command_for(asked[0])
            output.say("\n".join([asking_line(asked[0]), *field_lines(asked[0])]))
            output.say(f"nobody sits at a terminal here, so a second process answers: {command}")
            _, *arguments = shlex.split(command)
            process = await asyncio.create_subprocess_exec(sys.executable, "-m", "dagwright", *arguments)
            await process.wait()
            return


def _tell_store(database: EntityDatabase, output: Output) -> None:
    """Shows the rows that the plan is about."""
    table = Table(title="in the store now", title_justify="left", box=None, show_header=False, padding=(0, 2, 0, 0))
    for row in read_overview(database).rows:
        if row.subject.startswith("Iberia "):
            table.add_row(row.sort.value, Text(row.subject), Text(row.detail))
    output.show(table)


if __name__ == "__main__":
    leave(guarded(lambda: demo(Output()), Output(), settings=load_settings))
