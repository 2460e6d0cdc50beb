"""The plan of examples/travel on the real server, in front of the example's own service."""

from pathlib import Path

import pytest
from temporalio.client import Client

from dagwright.dialects.reading import read_plan_file
from dagwright.settings import Settings
from dagwright.tools import ToolRegistry
from tests.support.runs import document_of, serving_runs
from tests.support.travel import EXAMPLE, travel_service

pytestmark = pytest.mark.server


async def test_a_flight_a_hotel_and_things_to_do_are_found_at_once(client: Client, tmp_path: Path) -> None:
    plan = read_plan_file(EXAMPLE / "paris.yaml")
    with travel_service() as address:
        settings = Settings(state_dir=tmp_path, search_url=address)
        async with serving_runs(client, ToolRegistry(), settings=settings) as runs:
            document = await document_of(await runs.start(plan, inputs={"origin": "Oslo"}))
            await runs.check_ended()
    output, nodes = document["output"], document["nodes"]
    assert document["status"] == "completed"
    assert output["flight"] == nodes["flights"]["result"][0]["id"]
    assert output["to_do"] == [each["name"] for each in nodes["activities"]["result"]]
    assert output["hotel"].endswith(", Paris")
    assert all(each["origin"] == "Oslo" for each in nodes["flights"]["result"])
