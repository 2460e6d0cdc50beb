"""The workers for shipments in one plan of sub-goals: slots go through a run as they go from worker to worker."""

import json
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from dagwright.settings import Settings
from dagwright.testing import ModelServer, json_text, step
from dagwright.tools import load_tools
from tests.support.runs import document_of, serving_runs
from tests.support.search import Maritime

pytestmark = [pytest.mark.search, pytest.mark.server]


def sub_goal(number: int, worker: str, outputs: list[str], *, params: Any = None, **inputs: Any) -> dict[str, Any]:
    wired = {
        slot: [{"from_sub_goal": each, "slot": slot} for each in sources]
        if isinstance(sources, list)
        else {"from_sub_goal": sources, "slot": slot}
        for slot, sources in inputs.items()
    }
    return {"id": number, "worker": worker, "outputs": outputs, "params": params or {}, "inputs": wired}


def looked_up(number: int, carrier: str) -> dict[str, Any]:
    question = f"{carrier} volumes to LA last quarter"
    outputs = ["metadata_results", "value_results", "analysis_result"]
    return sub_goal(number, "metadata_lookup", outputs, params={"question": question})


def reading(carrier: str) -> Any:
    names = [
        {"text": carrier, "kind": "carrier", "field": "carrier_name"},
        {"text": "LA", "kind": "port", "field": "destination_port"},
    ]
    answer = {
        "intent_type": "aggregation",
        "names": names,
        "conditions": [],
        "metrics": [{"op": "sum", "field": "teu"}],
        "group_by": [],
        "top": None,
        "period": {"words": "last quarter", "fields": ["departure_date"]},
        "fields": [],
    }
    return step(json_text(answer), text=f'{{"question": "{carrier} volumes')


def query(carrier: str) -> Any:
    terms: list[Any] = [{"term": {"carrier_name": carrier}}, {"term": {"destination_port": "Los Angeles"}}]
    days = {"range": {"departure_date": {"gte": "2025-10-01", "lte": "2025-12-31"}}}
    body = {
        "size": 0,
        "query": {"bool": {"filter": [*terms, days]}},
        "aggs": {"volume": {"sum": {"field": "teu"}}},
    }
    written = json_text({"body": json.dumps(body), "ambiguity": None})
    return step(written, text=f'"value": "{carrier}"')


async def test_two_carriers_are_compared(
    maritime: Maritime, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volumes = {
        carrier: sum(
            each["teu"]
            for each in maritime.shipments()
            if each["carrier_name"] == carrier
            and each["destination_port"] == "Los Angeles"
            and "2025-10-01" <= each["departure_date"] <= "2025-12-31"
        )
        for carrier in ("MAERSK", "EVERGREEN")
    }
    more = volumes["MAERSK"] - volumes["EVERGREEN"]
    words = json_text({"text": f"MAERSK carried {more:,} TEU more than EVERGREEN."})
    plan = {
        "sub_goals": [
            looked_up(1, "Maersk"),
            looked_up(2, "Evergreen"),
            sub_goal(
                3, "es_query_gen", ["es_query", "ambiguity"], analysis_result=1, metadata_results=1, value_results=1
            ),
            sub_goal(4, "es_query_gen", ["es_query", "ambiguity"], analysis_result=2, metadata_results=2),
            sub_goal(5, "es_query_exec", ["es_results", "hit_count"], es_query=3),
            sub_goal(6, "es_query_exec", ["es_results", "hit_count"], es_query=4),
            sub_goal(7, "analyze_results", ["analysis"], params={"question": "Who carried more?"}, es_results=[5, 6]),
            sub_goal(8, "show_results", ["formatted_results"], es_results=[5, 6]),
        ]
    }
    steps = [reading("Maersk"), reading("Evergreen"), query("MAERSK"), query("EVERGREEN"), step(words, text="Figures:")]
    async with ModelServer(*steps) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "any")
        settings = maritime.settings(Settings(state_dir=tmp_path, model="small"))
        async with serving_runs(client, load_tools(["dagwright.maritime"]), settings=settings) as runs:
            document = await document_of(await runs.start(plan, dialect="subgoals"))
            await runs.check_ended()
    errors = {name: node["error"] for name, node in document["nodes"].items() if node["error"]}
    assert (document["status"], errors) == ("completed", {})
    analysis = document["nodes"]["sg7"]["result"]["analysis"]
    assert analysis.startswith(f"MAERSK carried {more:,} TEU more than EVERGREEN.")
    assert f"| volume | {volumes['MAERSK']:,} | {volumes['EVERGREEN']:,} | {more:,} |" in analysis
    assert document["nodes"]["sg8"]["result"]["formatted_results"].count("| volume |") == 2
