"""Live progress and the drawing of a run on the real server."""

from collections.abc import AsyncIterator

import pytest

from dagwright.client.live_progress import LineView, show_progress
from dagwright.client.run_drawing import read_drawing
from dagwright.client.runs import Runs as ClientRuns
from dagwright.history.executions import RunNotFound
from dagwright.plans.drawing import Drawing
from dagwright.plans.plan import Plan
from tests.support.runs import Runs, document_of
from tests.workflow.building import client_runs_of

pytestmark = pytest.mark.server


class DrawnRun:
    """A run with only the methods that `show_progress` calls."""

    def __init__(self, runs: ClientRuns, run_id: str) -> None:
        self._runs, self._id = runs, run_id

    async def events(self) -> AsyncIterator[object]:
        async for update in self._runs.subscriptions.subscribe(self._id):
            yield update

    async def draw(self) -> Drawing:
        return await read_drawing(self._runs, self._id)


async def test_drawing_has_the_state_of_each_node(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    plan = Plan("Count")
    text = plan.add("text", size=3)
    lengths = plan.add("length", for_each=["a", "bb", "ccc"], text=plan.item, key=plan.item, id="each")
    plan.add("length", id="never", text=text, when=(lengths[1] > 5) & (text == "xxx"))
    plan.add("length", id="long", text=f"{text}-{lengths[2]}", when=text.size() == 3)
    plan.output = {"each": lengths, "long": plan["long"]}
    handle = await runs.start(plan.to_dict())
    client_runs = client_runs_of(runs)
    await show_progress(DrawnRun(client_runs, handle.id), view=LineView())
    assert (await document_of(handle))["output"] == {"each": [1, 2, 3], "long": 5}
    drawing = await read_drawing(client_runs, handle.id)
    assert drawing.status == "completed"
    assert [(node.id, node.executor, str(node.status), node.counts, node.attempts) for node in drawing.nodes] == [
        ("text", "text", "completed", "", 1),
        ("each", "length", "completed", "3/3", 0),
        ("never", "length", "skipped", "", 0),
        ("long", "length", "completed", "", 1),
    ]
    assert drawing.edges == [(0, 2), (1, 2), (0, 3), (1, 3)]
    assert all(node.duration_s is not None for node in drawing.nodes if node.id != "never")
    assert "completed  each  length  3/3" in capsys.readouterr().out
    with pytest.raises(RunNotFound):
        await read_drawing(client_runs, "no-such-run")
