"""Draw docs/run.svg: run docs/run.yaml on a real server and save the live picture in the middle of the run.

`python scripts/run_picture.py [FILE]`
"""

import asyncio
import io
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.text import Text

from dagwright.client.runs import open_runs
from dagwright.client.starts import StartRequest
from dagwright.core.model.states import NodeStatus
from dagwright.dialects.reading import read_plan_file
from dagwright.history.run_reader import RunView
from dagwright.interfaces.cli.output import with_link
from dagwright.interfaces.cli.rendering import Picture
from dagwright.logging import configure_logging
from dagwright.plans.preparation import check_plan, prepare_plan
from dagwright.server import open_connection
from dagwright.settings import Settings
from dagwright.toolset.toolset import load_toolset
from dagwright.worker.serving import serving

ROOT = Path(__file__).parents[1]
HEIGHT = 30
WIDTH = 120

_FORMAT = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, monospace; font-size: {char_height}px;
  line-height: {line_height}px; font-variant-east-asian: full-width; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""
"""Rich's own format without the web fonts: a picture must not load anything from another site."""


async def picture_in_the_middle(state_dir: Path) -> str:
    """Return the picture of the run when `settle` is running and all other runnable nodes have ended."""
    settings = Settings(state_dir=state_dir, files_root=ROOT, log_level="error")
    configure_logging(settings)
    toolset = load_toolset(settings)
    plan = prepare_plan(check_plan(read_plan_file(ROOT / "docs/run.yaml"), toolset.declarations()), {})
    async with (
        open_connection(settings) as connection,
        serving(connection.client, toolset, task_queue=settings.task_queue),
    ):
        runs = open_runs(connection, settings)
        started = await runs.start(StartRequest(plan, workflow_id="close-the-quarter"))
        async for view in runs.feed(started.workflow_id).follow():
            if view.is_closed or _is_in_the_middle(view):
                return draw(view, connection.server.run_url(started.workflow_id, run_id=started.run_id))
    raise AssertionError("a run that is followed has a last view")


def _is_in_the_middle(view: RunView) -> bool:
    if view.scheduler is None:
        return False
    status = {
        node.id: record.status for node, record in zip(view.scheduler.plan.nodes, view.scheduler.records, strict=True)
    }
    waiting = {name for name, state in status.items() if not state.is_final}
    return waiting == {"settle", "letter"} and status["settle"] is NodeStatus.RUNNING


def draw(view: RunView, url: str | None) -> str:
    """Return the picture of a run as SVG."""
    console = Console(record=True, width=WIDTH, height=HEIGHT, file=io.StringIO(), force_terminal=True, highlight=False)
    console.print("$ dagwright run docs/run.yaml", style="bold")
    console.print(Text(with_link(f"run {view.workflow_id}", url), no_wrap=True), soft_wrap=True)
    console.print(Picture().draw(view, now=time.time(), height=HEIGHT))
    return console.export_svg(title="dagwright", code_format=_FORMAT, unique_id="run")


def main() -> None:
    """Draw the picture."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs/run.svg"
    with tempfile.TemporaryDirectory() as folder:
        picture = asyncio.run(picture_in_the_middle(Path(folder)))
    target.write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
