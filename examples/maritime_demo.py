"""`make demo-maritime`: two carriers are compared in rounds, on a real search server.

The server is started and filled with ten thousand made-up shipments, unless DAGWRIGHT_OPENSEARCH_URL names one. With
OPENAI_API_KEY or OPENAI_BASE_URL a real model works, the one of DAGWRIGHT_MODEL. Without, a script plays its part; the
first line says which of the two it is.
"""

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from opensearchpy.exceptions import OpenSearchException
from pydantic import SecretStr

from dagwright.cli.connecting import command_settings
from dagwright.cli.edge import guarded, leave
from dagwright.cli.exits import CommandRefused, ExitCode
from dagwright.cli.goals import ask_with
from dagwright.cli.output import Output
from dagwright.cli.requests import AskRequest
from dagwright.maritime.indices import Indices
from dagwright.maritime.loading import LoadFailed, is_loaded, load
from dagwright.maritime.shipments import DataSet
from dagwright.search.client import client_of, shown
from dagwright.search.errors import NoSearchServer
from dagwright.search.server import LocalSearch
from dagwright.settings import Settings, load_settings
from examples.ask_demo import USUAL_MODEL, set_here

QUESTION = "Compare Maersk vs Evergreen shipping volumes to LA last quarter"
WORKERS = "dagwright.maritime"
CARRIERS = (("Maersk", "MAERSK"), ("Evergreen", "EVERGREEN"))


def demo(output: Output) -> int:
    """Asks, and returns the exit code of the run."""
    settings = command_settings()
    data = DataSet(datetime.now(UTC).date())
    is_real = settings.llm_api_key is not None or settings.llm_base_url is not None
    if is_real:
        model = settings.model or USUAL_MODEL
        where = f" at {settings.llm_base_url}" if settings.llm_base_url is not None else ""
        output.say(f"{model}{where} plans and works; to see the same without a model, unset {set_here()}")
    else:
        output.say("no OPENAI_API_KEY is set, so a script plays the model")
    with _filled(settings, data, output):
        output.say(f"\nquestion: {QUESTION}")
        request = AskRequest(QUESTION, profile="rounds", tools=[WORKERS])
        if is_real:
            return ask_with(request, settings.model_copy(update={"model": model}), output)
        with _scripted_model(script(data)) as address:
            scripted = {"openai_base_url": address, "openai_api_key": SecretStr("none"), "model": "scripted-model"}
            return ask_with(request, settings.model_copy(update=scripted), output)


@contextmanager
def _filled(settings: Settings, data: DataSet, output: Output) -> Iterator[None]:
    """Has a search server with the shipments for as long as the block lasts; ends it then if it was started here."""
    local = LocalSearch.of(settings)
    is_ours = settings.opensearch_url is None and local.find() is None
    try:
        output.say(asyncio.run(_ready(local, settings, data)))
        yield
    finally:
        if is_ours:
            asyncio.run(local.stop())


async def _ready(local: LocalSearch, settings: Settings, data: DataSet) -> str:
    """Starts the server and loads the shipments, as far as they are not there; returns what to say of it.

    Raises:
        CommandRefused: there is no server, or it does not take the shipments.
    """
    try:
        address = settings.opensearch_url or (await local.start()).address
        return await _fill(address, Indices(settings.opensearch_prefix), data)
    except NoSearchServer as error:
        raise CommandRefused(str(error), status="no_server", code=ExitCode.NO_SERVER) from error
    except OpenSearchException as error:
        words = f"the search server at {shown(address)} does not take the shipments: {error}"
        raise CommandRefused(words, status="no_server", code=ExitCode.NO_SERVER) from error
    except LoadFailed as error:
        raise CommandRefused(str(error)) from error


async def _fill(address: str, indices: Indices, data: DataSet) -> str:
    """Loads the shipments unless they are there; returns what to say of it."""
    there = f"{data.documents:,} shipments on the search server at {shown(address)}"
    async with client_of(address) as client:
        if await is_loaded(client, indices, data):
            return there
        await load(client, indices, data)
    return f"loaded {there}"


def last_quarter(today: date) -> tuple[date, date]:
    """Returns the first and the last day of the quarter that has ended most recently."""
    this = date(today.year, today.month - (today.month - 1) % 3, 1)
    last = this - timedelta(days=1)
    return date(last.year, last.month - 2, 1), last


def volumes(data: DataSet) -> dict[str, tuple[int, int]]:
    """Returns the figures that the answer must have: carrier -> TEU and number of shipments."""
    first, last = (day.isoformat() for day in last_quarter(data.today))
    found = {name: (0, 0) for _, name in CARRIERS}
    for each in data.shipments():
        if each["destination_port_code"] == "USLAX" and first <= each["departure_date"] <= last:
            teu, number = found.get(each["carrier_name"], (0, 0))
            if each["carrier_name"] in found:
                found[each["carrier_name"]] = (teu + each["teu"], number + 1)
    return found


def script(data: DataSet) -> list[Mapping[str, Any]]:
    """Returns what the model says, as steps of a script; the figures of the answer are worked out from the data."""
    first, last = last_quarter(data.today)
    words = f"from {first} to {last}"
    lookups = [
        _sub_goal(number, "metadata_lookup", f"volume of {name} to LA last quarter", {})
        for number, (name, _) in _NUMBERED
    ]
    queries = [
        _sub_goal(number + 2, "es_query_gen", f"volume of {name} to Los Angeles {words}", _all_slots(number))
        for number, (name, _) in _NUMBERED
    ]
    runs = [
        _sub_goal(number + 4, "es_query_exec", f"volume of {name}", {"es_query": _ref(number + 2, "es_query")})
        for number, (name, _) in _NUMBERED
    ]
    both = {"es_results": [_ref(5, "es_results"), _ref(6, "es_results")]}
    compare = _sub_goal(7, "analyze_results", "Compare the volumes of the two carriers.", both)
    figures = volumes(data)
    told = [f"- **{name}** carried {figures[key][0]:,} TEU in {figures[key][1]} shipments" for name, key in CARRIERS]
    more = max(CARRIERS, key=lambda carrier: figures[carrier[1]][0])[0]
    return [
        _says("intention", f"Compare the volumes in TEU that Maersk and Evergreen shipped to Los Angeles {words}."),
        _plans(
            "plan", "Both carriers and the port have to be found in the data; neither waits for the other.", lookups
        ),
        *(_works(f"sg{number}", lookup_answer(name)) for number, (name, _) in _NUMBERED),
        _plans("plan#2", "The names are found, so each carrier gets its query.", queries),
        *(_works(f"sg{number + 2}", query_answer(key, first, last)) for number, (_, key) in _NUMBERED),
        _plans("plan#3", "Both queries can run.", runs),
        _plans("plan#4", "The volumes are there and have to be compared.", [compare]),
        _works("sg7", {"text": f"{more} carried more."}),
        _done("plan#5", "The comparison is there.", {"comparison": _ref(7, "analysis")}),
        _says(
            "answer",
            f"Shipments that left for Los Angeles {words}:\n\n" + "\n".join(told) + f"\n\n{more} carried more.",
        ),
    ]


_NUMBERED = tuple(enumerate(CARRIERS, start=1))
_PACE = {"first": "400ms"}


def lookup_answer(name: str) -> Mapping[str, Any]:
    """Returns what the model of metadata_lookup says of one carrier."""
    names = [
        {"text": name, "kind": "carrier", "field": "carrier_name"},
        {"text": "LA", "kind": "port", "field": "destination_port"},
    ]
    return {
        "intent_type": "aggregation",
        "names": names,
        "conditions": [],
        "metrics": [{"op": "sum", "field": "teu"}],
        "group_by": ["carrier_name"],
        "top": None,
        "period": {"words": "last quarter", "fields": ["departure_date"]},
        "fields": [],
    }


def query_answer(carrier: str, first: date, last: date) -> Mapping[str, Any]:
    """Returns what the model of es_query_gen says of one carrier."""
    conditions = [
        {"term": {"carrier_name": carrier}},
        {"term": {"destination_port": "Los Angeles"}},
        {"range": {"departure_date": {"gte": first.isoformat(), "lte": last.isoformat()}}},
    ]
    groups = {"by_carrier": {"terms": {"field": "carrier_name"}, "aggs": {"total_teu": {"sum": {"field": "teu"}}}}}
    return {"body": {"query": {"bool": {"filter": conditions}}, "size": 0, "aggs": groups}, "ambiguity": None}


def _sub_goal(number: int, worker: str, words: str, inputs: Mapping[str, Any], **params: Any) -> Mapping[str, Any]:
    return {"id": number, "worker": worker, "description": words, "inputs": dict(inputs), "params": params}


def _ref(number: int, slot: str) -> Mapping[str, Any]:
    return {"from_sub_goal": number, "slot": slot}


def _all_slots(number: int) -> Mapping[str, Any]:
    return {slot: _ref(number, slot) for slot in ("analysis_result", "metadata_results", "value_results")}


def _says(node: str, words: str) -> Mapping[str, Any]:
    return {"when": {"metadata": {"node": node}}, "pace": _PACE, "text": words}


def _works(node: str, answer: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"when": {"metadata": {"node": node, "purpose": "worker"}}, "pace": _PACE, "json": answer}


def _plans(node: str, reasoning: str, sub_goals: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    answer = {"reasoning": reasoning, "action": "continue", "sub_goals": list(sub_goals)}
    return {"when": {"metadata": {"node": node}}, "pace": _PACE, "json": answer}


def _done(node: str, reasoning: str, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    answer = {"reasoning": reasoning, "action": "done", "synthesis_inputs": dict(inputs)}
    return {"when": {"metadata": {"node": node}}, "pace": _PACE, "json": answer}


@contextmanager
def _scripted_model(steps: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Serves a script in a process of its own for as long as the block lasts; gives its address."""
    with tempfile.TemporaryDirectory(prefix="dagwright-demo-") as folder:
        file = Path(folder) / "script.yaml"
        file.write_text(yaml.safe_dump({"steps": list(steps)}, sort_keys=False), encoding="utf-8")
        command = [sys.executable, "-m", "dagwright.testing", str(file)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            try:
                yield server.stdout.readline().strip()
            finally:
                server.terminate()


if __name__ == "__main__":
    leave(guarded(lambda: demo(Output()), Output(), settings=load_settings))
