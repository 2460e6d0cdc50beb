"""A plan that was built in Python runs, and its run is drawn, on the real server."""

from collections.abc import AsyncIterator

import pytest

from dagwright.client.live_progress import LineView, show_progress
from dagwright.client.run_drawing import read_drawing
from dagwright.client.runs import Runs as StartedRuns
from dagwright.history.executions import RunNotFound
from dagwright.plans.drawing import Drawing
from dagwright.plans.plan import Plan
from dagwright.server import Connection, Server
from tests.support.runs import Runs, document_of

pytestmark = pytest.mark.server


def started_of(runs: Runs) -> StartedRuns:
    connection = Connection(runs.client, Server("nowhere", runs.client.namespace), frozenset())
    return StartedRuns(connection, task_queue=runs.task_queue, store=runs.store)


class DrawnRun:
    """The methods of a run that progress uses."""

    def __init__(self, runs: StartedRuns, run_id: str) -> None:
        self._runs, self._id = runs, run_id

    async def events(self) -> AsyncIterator[object]:
        async for update in self._runs.subscriptions.subscribe(self._id):
            yield update

    async def draw(self) -> Drawing:
        return await read_drawing(self._runs, self._id)


async def test_plan_built_in_python_runs_and_is_drawn(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    plan = Plan("Count")
    text = plan.add("text", size=3)
    each = plan.add("length", for_each=["a", "bb", "ccc"], text=plan.item, key=plan.item, id="each")
    plan.add("length", id="never", text=text, when=(each[1] > 5) & (text == "xxx"))
    plan.add("length", id="long", text=f"{text}-{each[2]}", when=text.size() == 3)
    plan.output = {"each": each, "long": plan["long"]}
    handle = await runs.start(plan.to_dict())
    started = started_of(runs)
    await show_progress(DrawnRun(started, handle.id), view=LineView())
    assert (await document_of(handle))["output"] == {"each": [1, 2, 3], "long": 5}
    drawing = await read_drawing(started, handle.id)
    assert drawing.status == "completed"
    assert [(node.id, node.work, str(node.status), node.counts, node.attempts) for node in drawing.nodes] == [
        ("text", "text", "completed", "", 1),
        ("each", "length", "completed", "3/3", 0),
        ("never", "length", "skipped", "", 0),
        ("long", "length", "completed", "", 1),
    ]
    assert drawing.edges == [(0, 2), (1, 2), (0, 3), (1, 3)]
    assert all(node.duration_s is not None for node in drawing.nodes if node.id != "never")
    assert "completed  each  length  3/3" in capsys.readouterr().out
    with pytest.raises(RunNotFound):
        await read_drawing(started, "no-such-run")
