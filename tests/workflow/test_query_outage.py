"""A search server that goes away in the middle of a run: what was done stays done, and what a model said stays paid."""

import asyncio
import json
from pathlib import Path

import pytest
from pydantic import SecretStr
from temporalio.client import Client

from dagwright.maritime import es_query_exec, es_query_gen, show_results
from dagwright.settings import Settings
from dagwright.testing import ModelServer, json_text, step
from dagwright.tools import ToolRegistry
from tests.support.eventually import eventually
from tests.support.runs import document_of, serving_runs
from tests.support.search import live_search, load_maritime

pytestmark = [pytest.mark.server, pytest.mark.search]


async def test_server_may_go_away_between_the_answer_of_the_model_and_its_check(client: Client, tmp_path: Path) -> None:
    said = asyncio.Event()
    body = {"query": {"term": {"status": "arrived"}}, "sort": ["shipment_id"], "size": 3}
    answer = json_text({"body": json.dumps(body), "ambiguity": None})
    async with live_search(tmp_path / "search") as search, ModelServer(step(answer, released=said)) as model:
        own = await load_maritime(search, "outage", documents=40)
        plan = {
            "plan": 1,
            "nodes": [
                {
                    "id": "write",
                    "tool": "es_query_gen",
                    "arguments": {
                        "analysis_result": {"intent_type": "search", "question": "What has arrived?"},
                        "metadata_results": {"index": own.indices.shipments},
                    },
                },
                {"id": "run", "tool": "es_query_exec", "arguments": {"es_query": "{{write.result.es_query}}"}},
                {"id": "show", "tool": "show_results", "arguments": {"es_results": "{{run.result.es_results}}"}},
            ],
            "output": "{{show.result.formatted_results}}",
        }
        settings = Settings(
            state_dir=tmp_path, model="small", openai_base_url=model.base_url, openai_api_key=SecretStr("key")
        )
        tools = ToolRegistry.of(es_query_gen, es_query_exec, show_results)
        async with serving_runs(client, tools, settings=own.settings(settings)) as runs:
            handle = await runs.start(plan)
            await eventually(lambda: len(model.calls) == 1)
            await search.kill()
            said.set()

            async def has_failed_once() -> bool:
                pending = (await handle.describe()).raw_description.pending_activities
                return any("does not answer" in each.last_failure.message for each in pending)

            await eventually(has_failed_once)
            await search.start()
            document = await document_of(handle)
    arrived = [each for each in own.shipments() if each["status"] == "arrived"]
    assert document["status"] == "completed"
    assert [document["nodes"][name]["attempts"] > 1 for name in ("write", "run", "show")] == [True, False, False]
    assert document["output"].splitlines()[2].startswith(f"| {arrived[0]['shipment_id']} | ")
    assert f"3 of {len(arrived)} are shown; there are {len(arrived) - 3} more." in document["output"]
