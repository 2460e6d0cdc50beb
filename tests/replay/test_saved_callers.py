"""Saved histories of callers, the user workflows that run plans.

`python -m tests.replay.test_saved_callers` records the histories.
"""

import asyncio
import json
import tempfile
from pathlib import Path

import pytest
from temporalio.converter import DataConverter
from temporalio.worker import Replayer

from dagwright.settings import Settings
from dagwright.worker.plugin import DagwrightPlugin
from tests.replay.record import HISTORIES, save_history
from tests.replay.test_saved_histories import load_history
from tests.support.order_shop import OrderWorkflow
from tests.support.server import live_server
from tests.workflow.test_temporal_plugin import PRICE_PLAN, open_shop

_CALLER_HISTORIES = HISTORIES / "callers"
_LARGE_PLAN = {"nodes": [{"id": "all", "tool": "catalogue", "arguments": {"size": 12_000}}], "output": "{{all.result}}"}
_PLANS = {"priced": PRICE_PLAN, "large": _LARGE_PLAN, "rejected": {"nodes": [{"id": "a", "tool": "nobody"}]}}


@pytest.mark.parametrize("path", sorted(_CALLER_HISTORIES.glob("*.json")), ids=lambda path: path.stem)
async def test_saved_history_of_a_caller_replays(path: Path, tmp_path: Path) -> None:
    plugin = DagwrightPlugin(settings=Settings(state_dir=tmp_path))
    await Replayer(workflows=[OrderWorkflow], plugins=[plugin]).replay_workflow(load_history(path))


def test_every_plan_has_a_history() -> None:
    assert {path.stem for path in _CALLER_HISTORIES.glob("*.json")} == {*_PLANS}


async def record() -> None:
    """Save the history of a user workflow for each plan. The workflow runs the plan as a child."""
    with tempfile.TemporaryDirectory() as folder:
        async with live_server(Path(folder) / "server") as server:
            await server.start()
            async with open_shop(server, Path(folder), converter=DataConverter.default) as shop:
                for name, plan in _PLANS.items():
                    order = await shop.start_order(plan, {})
                    print(json.dumps(await order.result())[:200])  # noqa: T201 - a command
                    save_history(_CALLER_HISTORIES / f"{name}.json", await order.fetch_history())


if __name__ == "__main__":
    asyncio.run(record())
