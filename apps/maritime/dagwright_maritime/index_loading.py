"""Fill the indices of one prefix with generated shipments, names of shippers, carriers and ports, and helpdesk
articles.

Documents are generated and sent in batches, so the memory does not depend on their number. At the end, the parameters
of the data set are written into the mapping of the shipments. After an interrupted load, these parameters are missing.
"""

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from dagwright_maritime.indices import Indices
from dagwright_maritime.names import name_documents
from dagwright_maritime.shipments import DataSet

if TYPE_CHECKING:
    from opensearchpy import AsyncOpenSearch

_CREATED_BY = "dagwright_maritime"
_BATCH_SIZE = 2_000
"""Documents per batch, about 0.9 MB of JSON: above 1 MB, the HTTP client warns that it may block the event loop."""

_ARTICLES = Path(__file__).with_name("helpdesk.yaml")

ProgressCallback = Callable[[int], None]


class LoadFailed(Exception):
    """The load failed; documents that were already accepted remain."""


class ForeignIndex(LoadFailed):
    """An index with the same name exists and was not created by this module; the index is left unchanged."""


async def load(
    client: "AsyncOpenSearch", indices: Indices, data_set: DataSet, *, on_progress: ProgressCallback | None = None
) -> None:
    """Delete and create the indices, and fill them; the documents are searchable when this returns.

    Args:
        on_progress: called after each batch with the number of shipments sent so far.

    Raises:
        ForeignIndex: an index with one of the names was not created by this module; nothing was changed.
        LoadFailed: the server rejected documents.
        opensearchpy.exceptions.OpenSearchException: the server cannot be reached or rejects a request.
    """
    for index in indices.bodies():
        await _reject_foreign_index(client, index)
    for index, body in indices.bodies().items():
        await client.indices.delete(index=index, ignore_unavailable=True)
        await client.indices.create(index=index, body=_with_creator(body))
    await _send(
        client, indices.names, ((f"{document['kind']}-{document['code']}", document) for document in name_documents())
    )
    await _send(client, indices.helpdesk, ((article["article_id"], article) for article in articles()))
    await client.indices.put_settings(index=indices.shipments, body={"index": {"refresh_interval": "-1"}})
    documents = ((shipment["shipment_id"], shipment) for shipment in data_set.shipments())
    await _send(client, indices.shipments, documents, on_progress=on_progress)
    await client.indices.put_settings(index=indices.shipments, body={"index": {"refresh_interval": None}})
    await client.indices.refresh(index=",".join(indices.bodies()))
    meta = {**_with_creator(indices.bodies()[indices.shipments])["mappings"]["_meta"], "loaded": data_set.to_json()}
    await client.indices.put_mapping(index=indices.shipments, body={"_meta": meta})


async def is_loaded(client: "AsyncOpenSearch", indices: Indices, data_set: DataSet) -> bool:
    """Return whether the indices hold exactly these shipments."""
    meta = await _meta(client, indices.shipments)
    return meta is not None and meta.get("loaded") == data_set.to_json()


def articles() -> list[Mapping[str, Any]]:
    """Return the documents of the helpdesk, as they are indexed."""
    entries = yaml.safe_load(_ARTICLES.read_text(encoding="utf-8"))
    return [
        {"article_id": entry["id"], "title": entry["title"], "body": entry["body"], "tags": entry["tags"]}
        for entry in entries
    ]


async def _reject_foreign_index(client: "AsyncOpenSearch", index: str) -> None:
    meta = await _meta(client, index)
    if meta is not None and meta.get("created_by") != _CREATED_BY:
        raise ForeignIndex(
            f"index {index!r} exists and was not created by a load of shipments: use another prefix "
            "(--prefix, DAGWRIGHT_OPENSEARCH_PREFIX), or delete the index"
        )


async def _meta(client: "AsyncOpenSearch", index: str) -> Mapping[str, Any] | None:
    """Return the `_meta` of an index; `None` if the index does not exist."""
    # With `ignore`, the client does not log an expected 404 as a failure.
    mappings = await client.indices.get_mapping(index=index, ignore=404)
    if "error" in mappings:
        return None
    (mapping,) = mappings.values()
    meta: Mapping[str, Any] = mapping["mappings"].get("_meta", {})
    return meta


def _with_creator(body: Mapping[str, Any]) -> dict[str, Any]:
    mappings = body["mappings"]
    return {**body, "mappings": {**mappings, "_meta": {**mappings.get("_meta", {}), "created_by": _CREATED_BY}}}


async def _send(
    client: "AsyncOpenSearch",
    index: str,
    documents: Iterable[tuple[str, Mapping[str, Any]]],
    *,
    on_progress: ProgressCallback | None = None,
) -> None:
    """Send documents in batches; each batch is generated while the server processes the previous batch."""
    sent_count, pending_batch = 0, None
    for batch in _batches(documents):
        lines = "".join(_lines(batch))
        if pending_batch is not None:
            await pending_batch
        pending_batch = asyncio.create_task(_send_batch(client, index, lines))
        # Let the task write to the socket before the next batch is generated.
        await asyncio.sleep(0)
        sent_count += len(batch)
        if on_progress is not None:
            on_progress(sent_count)
    if pending_batch is not None:
        await pending_batch


async def _send_batch(client: "AsyncOpenSearch", index: str, lines: str) -> None:
    response = await client.bulk(index=index, body=lines, request_timeout=120)
    if response["errors"]:
        (rejected_item, *_) = [item["index"] for item in response["items"] if "error" in item["index"]]
        raise LoadFailed(
            f"the server rejected document {rejected_item['_id']!r} of {index!r}: {rejected_item['error']['reason']}"
        )


def _batches(
    documents: Iterable[tuple[str, Mapping[str, Any]]],
) -> Iterator[list[tuple[str, Mapping[str, Any]]]]:
    remaining_documents = iter(documents)
    while batch := list(islice(remaining_documents, _BATCH_SIZE)):
        yield batch


def _lines(batch: list[tuple[str, Mapping[str, Any]]]) -> Iterator[str]:
    for document_id, document in batch:
        yield f'{{"index":{{"_id":{json.dumps(document_id)}}}}}\n{json.dumps(document)}\n'
