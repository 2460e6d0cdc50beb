"""Worker tools that query shipments on a real search server, with a scripted model."""

import json
from collections import Counter
from typing import Any

import pytest

from dagwright.core.model.worker_results import WorkerResult
from dagwright.llm import Endpoint, ModelClient
from dagwright.testing import ModelServer, When, json_text, step
from dagwright.tools.errors import GiveUp
from dagwright.tools.worker_tools import SubGoal
from dagwright_maritime.query_execution import es_query_exec, page_query
from dagwright_maritime.query_generation import es_query_gen
from dagwright_maritime.result_display import show_results
from dagwright_maritime.search.limits import QueryRejected
from dagwright_maritime.search.requests import AccessDenied, RequestFailed
from dagwright_maritime.slots import AnalysisResult, EsQuery, EsResults, FieldDescription, MetadataResults, ValueResult
from tests.support.search import Maritime

pytestmark = pytest.mark.search

SUB_GOAL = SubGoal(2, "es_query_gen", "the query for volumes to LA", ("es_query", "ambiguity"), "support")
LA_FILTER = {"term": {"destination_port_code": "USLAX"}}


def query_of(maritime: Maritime, **body: Any) -> EsQuery:
    return EsQuery(index=maritime.indices.shipments, body=body)


async def run_query(maritime: Maritime, query: EsQuery) -> WorkerResult:
    async with maritime.call(node_id="sg3"):
        return await es_query_exec(query)


# es_query_exec


async def test_documents_are_returned_with_the_number_of_matches(maritime: Maritime) -> None:
    expected = [shipment["shipment_id"] for shipment in maritime.shipments() if shipment["carrier_name"] == "MAERSK"]
    query = query_of(maritime, query={"term": {"carrier_name": "MAERSK"}}, sort=["shipment_id"], size=3)
    result = await run_query(maritime, query)
    assert (result.status, result.message) == ("success", f"{len(expected):,} documents match.")
    assert result.outputs["hit_count"] == len(expected) > 100
    results = EsResults.model_validate(result.outputs["es_results"])
    assert [hit["shipment_id"] for hit in results.hits] == sorted(expected)[:3]
    assert (results.total, results.index, results.missing_values) == (len(expected), maritime.indices.shipments, [])


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"query": {"script_score": {"query": {"match_all": {}}, "script": {"source": "1"}}}}, "/query/script_score: "),
        ({"query": {"term": {"shipper_name.txt": "x"}}}, "/query/term/shipper_name.txt: there is no field"),
    ],
)
async def test_query_is_checked_before_it_runs(maritime: Maritime, body: dict[str, Any], problem: str) -> None:
    with pytest.raises(QueryRejected) as error:
        await run_query(maritime, query_of(maritime, **body))
    assert error.value.problems[0].startswith(problem)


async def test_missing_index_is_reported_with_a_remedy(maritime: Maritime) -> None:
    with pytest.raises(GiveUp) as error:
        await run_query(maritime, EsQuery(index=f"{maritime.indices.prefix}-missing", body={}))
    assert str(error.value) == (
        f"There is no index '{maritime.indices.prefix}-missing' on the search server: load the data with `python -m "
        "dagwright_maritime load`, or set DAGWRIGHT_OPENSEARCH_PREFIX to the prefix of the index names"
    )


async def test_query_that_the_server_rejects_fails_with_the_reason_of_the_server(maritime: Maritime) -> None:
    with pytest.raises(RequestFailed, match=r"failed to parse date field \[soon\]") as error:
        await run_query(maritime, query_of(maritime, query={"range": {"eta_date": {"gte": "soon"}}}))
    assert not isinstance(error.value, AccessDenied)


# page_query


async def pages_of(maritime: Maritime, query: EsQuery, page_size: int, offset: Any = None) -> list[dict[str, Any]]:
    """Return the outputs of all pages, starting at an offset. Each offset passes through JSON, as between nodes."""
    pages = []
    for _ in range(50):
        async with maritime.call(node_id="sg4"):
            page = await page_query(query, offset=json.loads(json.dumps(offset)), page_size=page_size)
        assert page.status == "success"
        pages.append(dict(page.outputs))
        offset = page.outputs["next_offset"]
        if not page.outputs["has_more"]:
            assert offset is None
            return pages
    raise AssertionError("the pages have no end")


_SORT_BY_DAYS = [{"transit_days": {"missing": "_first"}}]


@pytest.mark.parametrize(
    "sort", [None, [{"carrier_name": "asc"}], [{"arrival_date": "desc"}, "teu"], _SORT_BY_DAYS, ["_score"]]
)
async def test_pages_have_each_document_once_with_any_sort(maritime: Maritime, sort: Any) -> None:
    expected = [shipment["shipment_id"] for shipment in maritime.shipments() if shipment["status"] != "arrived"]
    query = {"bool": {"must_not": [{"term": {"status": "arrived"}}]}}
    pages = await pages_of(maritime, query_of(maritime, query=query, **({"sort": sort} if sort else {})), page_size=300)
    shipment_ids = [hit["shipment_id"] for page in pages for hit in page["page_results"]["hits"]]
    assert Counter(shipment_ids) == Counter(expected)
    assert [len(page["page_results"]["hits"]) for page in pages[:-1]] == [300] * (len(pages) - 1)
    assert len(pages) > 1


async def test_page_starts_at_a_numeric_offset_and_its_documents_are_shown(maritime: Maritime) -> None:
    expected = sorted(shipment["shipment_id"] for shipment in maritime.shipments())
    async with maritime.call(node_id="sg4"):
        page = await page_query(query_of(maritime, sort=["shipment_id"], size=1, **{"from": 3}), offset=40, page_size=2)
    assert [hit["shipment_id"] for hit in page.outputs["page_results"]["hits"]] == expected[40:42]
    assert (page.outputs["has_more"], page.outputs["next_offset"]) == (True, [expected[41]])
    table = show_results(EsResults.model_validate(page.outputs["page_results"]))["formatted_results"]
    assert table.splitlines()[2].startswith(f"| {expected[40]} | ")
    summary = (
        f"2 of the 2 documents of this page are shown. {len(expected):,} match in all. More follow on the next page."
    )
    assert summary in table


async def test_page_query_allows_the_helpdesk_index_and_rejects_aggregations_and_the_names_index(
    maritime: Maritime,
) -> None:
    pages = await pages_of(maritime, EsQuery(index=maritime.indices.helpdesk, body={}), page_size=15)
    assert len({hit["article_id"] for page in pages for hit in page["page_results"]["hits"]}) > 15
    groups = query_of(maritime, aggs={"a": {"sum": {"field": "teu"}}})
    for query in (groups, EsQuery(index=maritime.indices.names, body={})):
        with pytest.raises(QueryRejected):
            async with maritime.call(node_id="sg4"):
                await page_query(query)


# es_query_gen

VOLUME_BODY = {"query": {"bool": {"filter": [LA_FILTER]}}, "aggs": {"volume": {"sum": {"field": "teu"}}}}
AGGREGATION = AnalysisResult(intent_type="aggregation", question="volumes to LA")
SEARCH = AnalysisResult(intent_type="search", question="shipments that arrived yesterday")


def metadata_of(maritime: Maritime) -> MetadataResults:
    field = FieldDescription(name="teu", type="integer", description="Volume.")
    return MetadataResults(index=maritime.indices.shipments, fields=[field])


def query_answer(body: Any, ambiguity: Any = None) -> Any:
    """Return a response of the model. Its field `body` is a JSON string, as the strict schema requires."""
    return json_text({"body": json.dumps(body), "ambiguity": ambiguity})


async def generate_query(
    maritime: Maritime, model_server: ModelServer, analysis: Any = AGGREGATION, **slots: Any
) -> WorkerResult:
    """Run the scripted model, and generate a query with it."""
    slots = {"metadata_results": metadata_of(maritime), **slots}
    async with (
        model_server,
        ModelClient(Endpoint(model_server.base_url), model="small") as client,
        maritime.call(node_id="sg2", ask=client.complete),
    ):
        return await es_query_gen(analysis, sub_goal=SUB_GOAL, **slots)


async def test_query_of_the_model_is_limited_and_runs(maritime: Maritime) -> None:
    values = [[ValueResult(text="LA", field="destination_port_code", value="USLAX", kind="port")]]
    model_server = ModelServer(step(query_answer(VOLUME_BODY), when=When(metadata={"purpose": "worker"})))
    result = await generate_query(maritime, model_server, value_results=values)
    assert result.status == "success"
    assert (result.outputs["ambiguity"], result.message) == (None, None)
    query = EsQuery.model_validate(result.outputs["es_query"])
    assert (query.index, query.body["size"], query.body["timeout"]) == (maritime.indices.shipments, 0, "20000ms")
    document = json.loads(model_server.calls[0].messages[1]["content"])
    assert (document["task"], document["today"]) == ("the query for volumes to LA", "2026-02-10")
    assert {"name": "teu", "type": "integer", "description": "Volume."} in document["fields"]
    assert document["values"] == [{"text": "LA", "field": "destination_port_code", "value": "USLAX", "kind": "port"}]
    expected = sum(shipment["teu"] for shipment in maritime.shipments() if shipment["destination_port_code"] == "USLAX")
    assert (await run_query(maritime, query)).outputs["es_results"]["aggregations"]["volume"]["value"] == expected


SCRIPT_BODY = {"aggs": {"a": {"scripted_metric": {"map_script": "1"}}}}
UNKNOWN_FIELD_BODY = {"aggs": {"a": {"sum": {"field": "volume_teu"}}}}
TEXT_FIELD_BODY = {"aggs": {"a": {"terms": {"field": "shipper_name.text"}}}}
INVALID_DATE_BODY = {"query": {"range": {"eta_date": {"gte": "last week"}}}, "aggs": VOLUME_BODY["aggs"]}


@pytest.mark.parametrize(
    ("invalid_response", "problem"),
    [
        (query_answer(SCRIPT_BODY), "/aggs/a/scripted_metric: unknown aggregation"),
        (query_answer(UNKNOWN_FIELD_BODY), "/aggs/a/sum/field: there is no field 'volume_teu'"),
        (query_answer(TEXT_FIELD_BODY), "Text fields are not optimised"),
        (query_answer(INVALID_DATE_BODY), "failed to parse date field [last week]"),
        (query_answer({"query": {"match_all": {}}}), "/aggs: the query must have aggs: the intent is an aggregation"),
        (
            query_answer(VOLUME_BODY, {"question": "?", "options": ["one"]}),
            "/ambiguity/options: name at least two fields",
        ),
        (json_text({"query": {}}), "does not fit the schema"),
    ],
)
async def test_model_gets_the_problems_and_repairs_its_response(
    maritime: Maritime, invalid_response: Any, problem: str
) -> None:
    model_server = ModelServer(invalid_response, step(query_answer(VOLUME_BODY), when=When(last=problem)))
    result = await generate_query(maritime, model_server)
    assert result.outputs["es_query"]["body"]["aggs"] == VOLUME_BODY["aggs"]


async def test_model_removes_aggregations_from_the_query_of_a_search(maritime: Maritime) -> None:
    body = {"query": LA_FILTER, "sort": [{"teu": "desc"}], "size": 5}
    valid_answer = step(query_answer(body), when=When(last="the query must not have aggs for a search"))
    result = await generate_query(maritime, ModelServer(query_answer(VOLUME_BODY), valid_answer), SEARCH)
    assert result.outputs["es_query"]["body"]["size"] == 5


async def test_model_is_called_only_for_exactly_one_allowed_index(maritime: Maritime) -> None:
    missing_index = MetadataResults(index=f"{maritime.indices.prefix}-missing")
    two_indices = [MetadataResults(index=maritime.indices.names), metadata_of(maritime)]
    with pytest.raises(GiveUp, match="load the data with"):
        await generate_query(maritime, ModelServer(), metadata_results=missing_index)
    with pytest.raises(QueryRejected, match="/index: "):
        await generate_query(maritime, ModelServer(), metadata_results=MetadataResults(index="secret"))
    with pytest.raises(ValueError, match="A query needs one index"):
        await generate_query(maritime, ModelServer(), metadata_results=two_indices)
