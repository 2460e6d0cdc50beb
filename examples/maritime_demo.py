"""`make demo-maritime`: two carriers are compared in rounds, on a real search server.

The server is started, unless DAGWRIGHT_OPENSEARCH_URL names one, and filled with ten thousand made-up shipments in
indices of the demo's own, beside whatever else is there. With OPENAI_API_KEY or OPENAI_BASE_URL a real model works, the
one of DAGWRIGHT_MODEL. Without, a script plays its part, and takes its queries and figures from what the workers found;
the first line says which of the two it is.
"""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from typing import Any

from anyio.from_thread import start_blocking_portal
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
from dagwright.testing import Answer, Completion, ModelServer, Pace, ReceivedCall, Step, json_text, step
from examples.ask_demo import USUAL_MODEL, set_here

QUESTION = "Compare Maersk vs Evergreen shipping volumes to LA last quarter"
WORKERS = "dagwright.maritime"
CARRIERS = (("Maersk", "MAERSK"), ("Evergreen", "EVERGREEN"))


def demo(output: Output) -> int:
    """Asks, and returns the exit code of the run."""
    settings = command_settings()
    settings = settings.model_copy(update={"opensearch_prefix": f"demo-{settings.opensearch_prefix}"})
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
        with _served(ModelServer(*script(data.today))) as address:
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
    there = f"{data.documents:,} shipments in {indices.prefix}-* on the search server at {shown(address)}"
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


def script(today: date) -> list[Step]:
    """Returns what the model says; its queries and figures are made of what it is told."""
    first, last = last_quarter(today)
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
    return [
        _says("intention", f"Compare the volumes in TEU that Maersk and Evergreen shipped to Los Angeles {words}."),
        _plans(
            "plan", "Both carriers and the port have to be found in the data; neither waits for the other.", lookups
        ),
        *(_works(f"sg{number}", lookup_answer(name)) for number, (name, _) in _NUMBERED),
        _plans("plan#2", "The names are found, so each carrier gets its query.", queries),
        *(_works(f"sg{number + 2}", query_answer) for number, _ in _NUMBERED),
        _plans("plan#3", "Both queries can run.", runs),
        _plans("plan#4", "The volumes are there and have to be compared.", [compare]),
        _works("sg7", {"text": "The table has the volumes of both carriers side by side."}),
        _done("plan#5", "The comparison is there.", {"comparison": _ref(7, "analysis")}),
        _says("answer", lambda call: _compared(call.text, words)),
    ]


def _compared(told: str, words: str) -> str:
    lines = [f"- **{name}** carried {teu} TEU in {number} shipments" for name, teu, number in found_volumes(told)]
    more = max(found_volumes(told), key=lambda found: int(found[1].replace(",", "")))[0]
    return "\n".join([f"Shipments that left for Los Angeles {words}:", "", *lines, "", f"{more} carried more."])


def found_volumes(told: str) -> list[tuple[str, str, str]]:
    """Returns what the tables in a text say of the carriers: name, TEU and number of shipments, as written there."""
    rows = [[cell.strip() for cell in line.strip(" |").split("|")] for line in told.splitlines() if "|" in line]
    head = next(row for row in rows if row[0] == "by_carrier")
    of = {row[0]: row for row in rows}
    teu, number = head.index("total_teu"), head.index("documents")
    return [(name, of[key][teu], of[key][number]) for name, key in CARRIERS]


_NUMBERED = tuple(enumerate(CARRIERS, start=1))
_PACE = Pace(first_s=0.4)


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


def query_answer(call: ReceivedCall) -> Mapping[str, Any]:
    """Returns what the model of es_query_gen says: the query of the analysis that it is told."""
    [asked] = json.loads(call.messages[1]["content"])["analysis"]
    [metric], [group], period = asked["metrics"], asked["group_by"], asked["date_range"]
    conditions = [
        *({"term": {each["field"]: each["value"]}} for each in asked["filters"]),
        {"range": {period["field"]: {"gte": period["start"], "lte": period["end"]}}},
    ]
    figures = {"total_teu": {metric["op"]: {"field": metric["field"]}}}
    groups = {"by_carrier": {"terms": {"field": group}, "aggs": figures}}
    return {"body": {"query": {"bool": {"filter": conditions}}, "size": 0, "aggs": groups}, "ambiguity": None}


def _sub_goal(number: int, worker: str, words: str, inputs: Mapping[str, Any], **params: Any) -> Mapping[str, Any]:
    return {"id": number, "worker": worker, "description": words, "inputs": dict(inputs), "params": params}


def _ref(number: int, slot: str) -> Mapping[str, Any]:
    return {"from_sub_goal": number, "slot": slot}


def _all_slots(number: int) -> Mapping[str, Any]:
    return {slot: _ref(number, slot) for slot in ("analysis_result", "metadata_results", "value_results")}


Words = str | Callable[[ReceivedCall], str]
Slots = Mapping[str, Any] | Callable[[ReceivedCall], Mapping[str, Any]]


def _says(node: str, words: Words) -> Step:
    def answer(call: ReceivedCall) -> Answer:
        return Completion(text=words(call) if callable(words) else words, pace=_PACE)

    return step(answer, metadata={"node": node})


def _works(node: str, slots: Slots) -> Step:
    def answer(call: ReceivedCall) -> Answer:
        return json_text(slots(call) if callable(slots) else slots, pace=_PACE)

    return step(answer, metadata={"node": node, "purpose": "worker"})


def _plans(node: str, reasoning: str, sub_goals: Sequence[Mapping[str, Any]]) -> Step:
    answer = {"reasoning": reasoning, "action": "continue", "sub_goals": list(sub_goals)}
    return step(json_text(answer, pace=_PACE), metadata={"node": node})


def _done(node: str, reasoning: str, inputs: Mapping[str, Any]) -> Step:
    answer = {"reasoning": reasoning, "action": "done", "synthesis_inputs": dict(inputs)}
    return step(json_text(answer, pace=_PACE), metadata={"node": node})


@contextmanager
def _served(server: ModelServer) -> Iterator[str]:
    """Serves a scripted model in a thread for as long as the block lasts; gives its address."""
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(server):
        yield server.base_url


if __name__ == "__main__":
    leave(guarded(lambda: demo(Output()), Output(), settings=load_settings))
