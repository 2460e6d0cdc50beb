"""`make demo-onboarding`: onboard a fund whose director has an ambiguous name, and show the rows in the database.

The run asks which person is meant, and waits for the answer from a second terminal. If the demo itself does not run in
a terminal, it starts a second process, which selects the first option.
"""

import shlex
from pathlib import Path

from rich.table import Table
from rich.text import Text

from dagwright import SyncClient
from dagwright.plugins.commands import ExitCode, Output, end_process, run_guarded
from dagwright.settings import load_settings
from dagwright.types import FeedbackRequest
from dagwright_onboarding.database import EntityDatabase
from dagwright_onboarding.overview import read_overview
from examples.command_line import choose_id, run_command, running_command

PLAN = Path(__file__).parent / "onboarding" / "which_director.json"
ID_PREFIX = "which-director-"
PARTY_NAME_PREFIX = "Iberia "
"""Start of the names of the parties that the plan creates."""


def demo(output: Output) -> int:
    """Start the plan, watch it with `dagwright watch`, show the new fund, and return the exit code."""
    settings = load_settings()
    with SyncClient.connect(settings=settings) as client:
        title = "Onboard a fund with one of two directors"
        run = client.start(PLAN, run_id=choose_id(client, ID_PREFIX, output), title=title)
        with running_command("watch", run.id) as watch_process:
            if not output.can_ask:
                for event in run.events():
                    if event.type == "feedback.requested":
                        _answer_in_second_process(event.request, output)
                        break
        # At the end of the block, `watch` has ended.
        code: int = watch_process.returncode
    if code != ExitCode.INTERRUPTED:
        _show_rows(EntityDatabase(settings.database_url), output)
    return code


def _answer_in_second_process(request: FeedbackRequest, output: Output) -> None:
    """Select the first option with a command, as in a second terminal."""
    option = (request.options or [])[0]
    command = ("feedback", request.run_id, request.request_id, "--select", option["id"])
    output.print(f"no terminal, so a second process answers: dagwright {shlex.join(command)}")
    run_command(*command)


def _show_rows(database: EntityDatabase, output: Output) -> None:
    """Show the rows of the parties that the plan created."""
    table = Table(title="rows in the database", title_justify="left", box=None, show_header=False, padding=(0, 2, 0, 0))
    for row in read_overview(database).rows:
        if row.subject.startswith(PARTY_NAME_PREFIX):
            table.add_row(row.kind.value, Text(row.subject), Text(row.detail))
    output.show(table)


if __name__ == "__main__":
    end_process(run_guarded(lambda: demo(Output()), Output(), load_settings=load_settings))
