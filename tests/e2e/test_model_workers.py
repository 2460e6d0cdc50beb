"""Worker tools that call a scripted model and a real search server."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from dagwright.core.model.worker_results import WorkerResult
from dagwright.llm import Endpoint, ModelClient
from dagwright.testing import ModelServer, When, json_text, step
from dagwright.tools.testing import call_worker
from dagwright_maritime.clarification import clarify_question
from dagwright_maritime.helpdesk import common_helpdesk
from dagwright_maritime.indices import Indices
from dagwright_maritime.metadata import metadata_lookup
from dagwright_maritime.metadata_explanation import explain_metadata
from dagwright_maritime.model_answers import MAX_ANSWERS
from dagwright_maritime.query_execution import es_query_exec
from dagwright_maritime.result_analysis import analyze_results
from dagwright_maritime.search.client import open_client
from tests.support.search import TODAY, Maritime

pytestmark = pytest.mark.search


async def call_with_model(
    maritime: Maritime, model_server: ModelServer, worker_tool: Callable[..., Any], **arguments: Any
) -> WorkerResult:
    """Run the scripted model, and call a worker tool with it."""
    async with (
        model_server,
        maritime.tool_environment() as environment,
        ModelClient(Endpoint(model_server.base_url), model="small") as client,
    ):
        options: dict[str, Any] = {"description": "what the planner wants", "environment": environment}
        return await call_worker(worker_tool, arguments, ask=client.complete, **options)


def user_message_of(model_server: ModelServer) -> str:
    return str(model_server.calls[0].messages[1]["content"])


# metadata_lookup


def lookup_answer(intent_type: str = "search", **fields: Any) -> Any:
    empty_lists: dict[str, Any] = {name: [] for name in ("names", "conditions", "metrics", "group_by", "fields")}
    return json_text({"intent_type": intent_type, **empty_lists, "top": None, "period": None, **fields})


def name_entry(text: str, kind: str, field: str | None = None) -> dict[str, Any]:
    return {"text": text, "kind": kind, "field": field}


async def look_up(maritime: Maritime, question: str, *answers: Any) -> WorkerResult:
    return await call_with_model(maritime, ModelServer(*answers), metadata_lookup, question=question)


async def test_names_are_resolved_to_values_of_the_data(maritime: Maritime) -> None:
    names = [name_entry("Maersk", "shipper", "shipper_name"), name_entry("LA", "port", "destination_port")]
    model_server = ModelServer(step(lookup_answer(names=names), when=When(metadata={"purpose": "worker"})))
    result = await call_with_model(maritime, model_server, metadata_lookup, question="Show me Maersk shipments to LA")
    assert (result.status, result.message) == ("success", None)
    analysis = result.outputs["analysis_result"]
    assert (analysis["intent_type"], analysis["question"]) == ("search", "Show me Maersk shipments to LA")
    expected = [("carrier_name", "is", "MAERSK"), ("destination_port", "is", "Los Angeles")]
    assert [(each["field"], each["op"], each["value"]) for each in analysis["filters"]] == expected
    assert [each["value"] for each in result.outputs["value_results"]] == ["MAERSK", "Los Angeles"]
    metadata = result.outputs["metadata_results"]
    fields = [(field["name"], field["type"]) for field in metadata["fields"]]
    assert metadata["index"] == maritime.indices.shipments
    assert fields == [("carrier_name", "keyword"), ("destination_port", "keyword")]
    lines = [json.loads(line) for line in user_message_of(model_server).splitlines() if line.startswith("{")]
    assert lines[0] == {"question": "Show me Maersk shipments to LA"}
    teu = next(line for line in lines if line.get("field") == "teu")
    assert (teu["type"], "volume" in teu["also_called"]) == ("integer", True)


async def test_periods_are_computed_from_the_day_of_the_data(maritime: Maritime) -> None:
    answer = lookup_answer(
        "aggregation",
        names=[name_entry("Maersk", "carrier", "carrier_name"), name_entry("Evergreen", "carrier", "carrier_name")],
        metrics=[{"op": "sum", "field": "teu"}],
        group_by=["carrier_name"],
        period={"words": "last quarter", "fields": ["departure_date"]},
    )
    result = await look_up(maritime, "Compare Maersk and Evergreen volumes last quarter", answer)
    assert TODAY.isoformat() == "2026-02-10"
    analysis = result.outputs["analysis_result"]
    assert analysis["date_range"] == {"field": "departure_date", "start": "2025-10-01", "end": "2025-12-31"}
    assert analysis["filters"] == [{"field": "carrier_name", "op": "in", "value": ["MAERSK", "EVERGREEN"]}]
    assert analysis["metrics"] == [{"op": "sum", "field": "teu"}]
    assert analysis["fields"] == ["carrier_name", "departure_date", "teu"]


async def test_date_that_fits_two_fields_leaves_the_field_undecided(maritime: Maritime) -> None:
    period = {"words": "yesterday", "fields": ["arrival_date", "eta_date"]}
    result = await look_up(maritime, "shipments arrived yesterday", lookup_answer(period=period))
    analysis = result.outputs["analysis_result"]
    assert analysis["date_range"] == {"field": None, "start": "2026-02-09", "end": "2026-02-09"}
    assert analysis["fields"] == ["arrival_date", "eta_date"]


async def test_unknown_name_fails_or_is_partial_if_similar_names_exist(maritime: Maritime) -> None:
    answer = lookup_answer(names=[name_entry("Xyzzyx", "shipper")])
    result = await look_up(maritime, "shipments of Xyzzyx", answer)
    assert (result.status, result.error) == ("failed", "no shipper, carrier or port is called 'Xyzzyx'")
    answer = lookup_answer(names=[name_entry("Pacific Ocean Trading", "shipper")])
    result = await look_up(maritime, "shipments of Pacific Ocean Trading", answer)
    assert (result.status, result.outputs["analysis_result"]) == ("partial", None)
    assert "similar names: " in (result.message or "")
    assert "Pacific Rim Trading Co" in (result.message or "")


async def test_a_misspelt_name_is_accepted_and_reported(maritime: Maritime) -> None:
    answer = lookup_answer(names=[name_entry("Maersc", "carrier", "carrier_name")])
    result = await look_up(maritime, "shipments of Maersc", answer)
    assert (result.status, result.message) == ("success", "'Maersc' is resolved to MAERSK")
    assert result.outputs["analysis_result"]["entities"][0]["value"] == "MAERSK"


async def test_values_of_conditions_are_converted_to_values_of_the_data(maritime: Maritime) -> None:
    conditions = [
        {"field": "status", "op": "is", "values": ["In Transit"]},
        {"field": "commodity", "op": "in", "values": ["Furniture", "Toys"]},
        {"field": "teu", "op": "gte", "values": ["10"]},
        {"field": "arrival_date", "op": "missing", "values": []},
        {"field": "shipment_id", "op": "is", "values": ["SH-00000042"]},
    ]
    result = await look_up(maritime, "furniture and toys in transit, 10 TEU", lookup_answer(conditions=conditions))
    assert [(each["op"], each["value"]) for each in result.outputs["analysis_result"]["filters"]] == [
        ("is", "in_transit"),
        ("in", ["furniture", "toys"]),
        ("gte", 10),
        ("missing", None),
        ("is", "SH-00000042"),
    ]
    invalid_conditions = [{"field": "status", "op": "is", "values": ["lost"]}]
    result = await look_up(maritime, "lost shipments", lookup_answer(conditions=invalid_conditions))
    assert (result.status, "status has no value 'lost'; it has " in (result.error or "")) == ("failed", True)


@pytest.mark.parametrize(
    ("invalid_fields", "problem"),
    [
        ({"names": [name_entry("Hapag", "carrier")]}, "'Hapag' is not in the question, or is not a name"),
        ({"metrics": [{"op": "avg", "field": "status"}]}, "avg needs a numeric field, but status is keyword"),
        ({"metrics": [{"op": "sum", "field": None}]}, "sum needs a field"),
        ({"conditions": [{"field": "teu", "op": "gt", "values": ["many"]}]}, "teu is a number, but 'many' is not"),
        ({"conditions": [{"field": "status", "op": "gt", "values": ["x"]}]}, "gt needs a numeric field"),
        ({"conditions": [{"field": "eta_date", "op": "gt", "values": ["x"]}]}, "eta_date is a date; use period"),
        ({"conditions": [{"field": "status", "op": "is", "values": []}]}, "is of status needs a value"),
        ({"period": {"words": "soon", "fields": ["eta_date"]}}, "'soon' is not a supported period"),
        ({"period": {"words": "today", "fields": []}}, "expected at least one date field"),
        ({"top": 0}, "expected a number from 1, or null"),
    ],
)
async def test_invalid_lookup_answer_is_repaired(
    maritime: Maritime, invalid_fields: Mapping[str, Any], problem: str
) -> None:
    valid_answer = step(lookup_answer(fields=["teu"]), when=When(last=problem))
    result = await look_up(maritime, "What is soon?", lookup_answer(**invalid_fields), valid_answer)
    assert result.outputs["analysis_result"]["fields"] == ["teu"]


# common_helpdesk


def article_answer(text: str, *ids: str) -> Any:
    return json_text({"is_answered": bool(text), "answer": text, "article_ids": list(ids)})


async def test_helpdesk_answers_from_articles_and_lists_the_sources(maritime: Maritime) -> None:
    model_server = ModelServer(article_answer("Goods that one shipper sends.", "what-is-a-shipment"))
    result = await call_with_model(maritime, model_server, common_helpdesk, question="what's a shipment?")
    assert result.status == "success"
    sources = "Sources: What is a shipment? (what-is-a-shipment)"
    assert result.outputs["answer"] == f"Goods that one shipper sends.\n\n{sources}"
    articles = [json.loads(line) for line in user_message_of(model_server).splitlines() if '"article_id"' in line]
    assert articles[0]["article_id"] == "what-is-a-shipment"
    assert 2 <= len(articles) <= 5


async def test_answer_without_an_existing_article_is_repaired(maritime: Maritime) -> None:
    valid_answer = article_answer("Twenty feet.", "what-is-teu")
    for invalid_answer, problem in (
        (article_answer("Made up.", "no-such"), "there is no article 'no-such' among"),
        (article_answer("Made up."), "article_ids is empty"),
    ):
        model_server = ModelServer(invalid_answer, step(valid_answer, when=When(last=problem)))
        result = await call_with_model(maritime, model_server, common_helpdesk, question="What is a TEU?")
        assert result.outputs["answer"].startswith("Twenty feet.")


async def test_a_question_without_a_matching_article_is_reported_as_unanswered(maritime: Maritime) -> None:
    message = "The help articles do not cover “Who won the shipment of 1986?”."
    model_server = ModelServer(article_answer(""))
    result = await call_with_model(maritime, model_server, common_helpdesk, question="Who won the shipment of 1986?")
    assert (result.status, result.outputs["answer"]) == ("partial", message)
    # No article is found, so the model is not called.
    result = await call_with_model(maritime, ModelServer(), common_helpdesk, question="qwertyuiop")
    assert (result.status, result.message) == ("partial", "no help article answers the question")


# clarify_question


async def test_clarification_lists_all_options(maritime: Maritime) -> None:
    options = ["Acme Corp LLC", "Acme Corporation", "Acme Co", "Acme Co"]
    model_server = ModelServer(json_text({"message": "Several companies fit.\nWhich one did you mean?"}))
    question = "Acme Corp may be three companies"
    result = await call_with_model(maritime, model_server, clarify_question, question=question, options=options)
    assert result.outputs["clarification_message"] == (
        "Several companies fit. Which one did you mean?\n\n1. Acme Corp LLC\n2. Acme Corporation\n3. Acme Co"
    )


async def test_ambiguity_of_a_query_becomes_a_question(maritime: Maritime) -> None:
    ambiguity = {"question": "Which date is meant?", "options": ["arrival_date", "eta_date"]}
    valid_answer = json_text({"message": "Do you mean the day of arrival or the expected one?"})
    invalid_answer = json_text({"message": "I took one."})
    model_server = ModelServer(invalid_answer, step(valid_answer, when=When(last="must end with a question")))
    result = await call_with_model(maritime, model_server, clarify_question, ambiguity=ambiguity)
    assert result.outputs["clarification_message"].endswith("\n\n1. arrival_date\n2. eta_date")
    assert '"not_clear": "Which date is meant?"' in user_message_of(model_server)


# explain_metadata


async def test_fields_are_explained_with_their_number_of_documents(maritime: Maritime) -> None:
    arrived_count = sum("arrival_date" in shipment for shipment in maritime.shipments())
    fields = [{"name": each, "type": "date"} for each in ("arrival_date", "eta_date")]
    metadata = {"index": maritime.indices.shipments, "fields": fields}
    explanation_text = "`arrival_date` is when it did arrive, `eta_date` when it was expected."
    invalid_answers = (
        json_text({"explanation": "See `arrived_on`."}),
        step(json_text({"explanation": "About 12,345 have none."}), when=When(last="there is no field 'arrived_on'")),
    )
    valid_answer = step(
        json_text({"explanation": explanation_text}), when=When(last="no line has these figures: 12,345")
    )
    model_server = ModelServer(*invalid_answers, valid_answer)
    slots = {"metadata_results": metadata, "question": "arrival or ETA?"}
    result = await call_with_model(maritime, model_server, explain_metadata, **slots)
    explanation = result.outputs["explanation"]
    assert explanation.startswith(explanation_text)
    assert explanation.splitlines()[2:] == [
        "- `arrival_date` (date): Day on which the shipment actually arrived; missing until then. "
        f"({arrived_count:,} of 10,000 documents have it)",
        "- `eta_date` (date): Day on which the shipment is expected to arrive, as estimated at departure; never "
        "missing. (all documents have it)",
    ]


async def test_fields_of_any_name_and_number_are_explained(maritime: Maritime) -> None:
    odd_maritime = replace(maritime, indices=Indices("odd"))
    index = odd_maritime.indices.shipments
    names = ["@timestamp", "arrival-date", "größe", "with blank", *(f"f{number}" for number in range(30))]
    mappings = {"properties": {name: {"type": "keyword"} for name in names}, "_meta": {"fields": ["f1"], "loaded": 3}}
    async with open_client(maritime.search.address) as client:
        await client.indices.create(index=index, body={"mappings": mappings})
        for number, name in enumerate(names[:3]):
            await client.index(index=index, id=str(number), body={name: "a"}, refresh=True)
    model_server = ModelServer(step(json_text({"explanation": "All of them."})))
    metadata = {"index": index, "fields": []}
    result = await call_with_model(odd_maritime, model_server, explain_metadata, metadata_results=metadata)
    lines = result.outputs["explanation"].splitlines()
    counts = {name: 1 if name in names[:3] else 0 for name in names}
    assert sorted(lines[2:]) == sorted(
        f"- `{name}` (keyword): The mapping has no description. ({count} of 3 documents have it)"
        for name, count in counts.items()
    )


async def test_fields_of_another_index_are_not_explained(maritime: Maritime) -> None:
    with pytest.raises(ValueError, match="only the fields of"):
        await call_with_model(maritime, ModelServer(), explain_metadata, metadata_results={"index": "secret"})


# analyze_results


async def carrier_results(maritime: Maritime, carrier: str) -> Any:
    terms = [{"term": {"carrier_name": carrier}}, {"term": {"destination_port_code": "USLAX"}}]
    body = {
        "size": 0,
        "query": {"bool": {"filter": terms}},
        "aggs": {"volume": {"sum": {"field": "teu"}}, "transit": {"avg": {"field": "transit_days"}}},
    }
    query = {"index": maritime.indices.shipments, "body": body}
    async with maritime.tool_environment() as environment:
        result = await call_worker(es_query_exec, {"es_query": query}, environment=environment)
    return result.outputs["es_results"]


def expected_volumes(maritime: Maritime) -> Iterator[int]:
    for carrier in ("MAERSK", "EVERGREEN"):
        carrier_shipments = (shipment for shipment in maritime.shipments() if shipment["carrier_name"] == carrier)
        yield sum(each["teu"] for each in carrier_shipments if each["destination_port_code"] == "USLAX")


async def test_results_are_compared_with_figures_of_the_data(maritime: Maritime) -> None:
    maersk_teu, evergreen_teu = expected_volumes(maritime)
    results = [await carrier_results(maritime, carrier) for carrier in ("MAERSK", "EVERGREEN")]
    difference, ratio = maersk_teu - evergreen_teu, maersk_teu / evergreen_teu
    text = f"MAERSK carried {maersk_teu:,} TEU, {difference:,} more than EVERGREEN ({100 * ratio:.1f} %)."
    invalid_answer = json_text({"text": f"MAERSK carried {maersk_teu + 1:,} TEU."})
    valid_answer = step(
        json_text({"text": text}), when=When(last=f"no line has these figures of your text: {maersk_teu + 1:,}")
    )
    model_server = ModelServer(invalid_answer, valid_answer)
    slots = {"es_results": results, "question": "Who carried more to LA?"}
    result = await call_with_model(maritime, model_server, analyze_results, **slots)
    analysis = result.outputs["analysis"]
    assert analysis.startswith(f"{text}\n\n**All matching documents**\n\n| figure | MAERSK | EVERGREEN | MAERSK minus ")
    row = next(line for line in analysis.splitlines() if line.startswith("| volume | "))
    assert row.startswith(f"| volume | {maersk_teu:,} | {evergreen_teu:,} | {maersk_teu - evergreen_teu:,} | ")


async def test_figures_are_reported_without_text_if_the_model_invents_numbers(maritime: Maritime) -> None:
    results = await carrier_results(maritime, "ZIM")
    model_server = ModelServer(step(json_text({"text": "Some 77,777 TEU."}), times=MAX_ANSWERS))
    slots = {"es_results": results, "question": "How much?"}
    result = await call_with_model(maritime, model_server, analyze_results, **slots)
    assert (result.status, "77,777" in result.outputs["analysis"]) == ("partial", False)
    assert result.message is not None
    assert "77,777" in result.message
    assert result.outputs["analysis"].endswith("transit has no value.")


async def test_empty_results_are_reported_without_a_model_call(maritime: Maritime) -> None:
    results = await carrier_results(maritime, "UNKNOWN")
    result = await call_with_model(maritime, ModelServer(), analyze_results, es_results=results)
    assert result.outputs["analysis"] == "Nothing matches, so there is nothing to compare."


async def test_number_of_labels_must_equal_the_number_of_results(maritime: Maritime) -> None:
    results = [await carrier_results(maritime, "ZIM")] * 2
    with pytest.raises(ValueError, match="labels has 1 texts for 2 results"):
        await call_with_model(maritime, ModelServer(), analyze_results, es_results=results, labels=["ZIM"])
