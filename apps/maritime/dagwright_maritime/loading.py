"""Fills the indices of one prefix with made-up shipments, the names in them, and helpdesk articles.

Documents are made and sent in portions, so a million need no more memory than ten thousand. What is loaded is written
into the mapping of the shipments when all is there: a load that was broken off shows by its absence.
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

_MADE_BY = "dagwright_maritime"
_PORTION = 2_000
"""About 0.9 MB of JSON: of more than a megabyte the HTTP client warns that it would hold up the event loop."""

_ARTICLES = Path(__file__).with_name("helpdesk.yaml")

Tell = Callable[[int], None]


class LoadFailed(Exception):
    """The data could not be loaded; the text is one sentence. What is there is what had been taken before."""


class NotOurs(LoadFailed):
    """An index of that name is there and was not made by this module: it is left as it is."""


async def load(client: "AsyncOpenSearch", indices: Indices, wanted: DataSet, *, tell: Tell | None = None) -> None:
    """Makes the indices anew and fills them; documents can be searched when this returns.

    Args:
        tell: called with the number of shipments sent so far, after each portion.

    Raises:
        NotOurs: an index that this module did not make has one of the names; nothing was changed.
        LoadFailed: the server refused documents.
        opensearchpy.exceptions.OpenSearchException: the server cannot be reached or refuses a request.
    """
    for index in indices.bodies():
        await _refuse_foreign(client, index)
    for index, body in indices.bodies().items():
        await client.indices.delete(index=index, ignore_unavailable=True)
        await client.indices.create(index=index, body=_marked(body))
    await _send(client, indices.names, ((f"{each['kind']}-{each['code']}", each) for each in name_documents()))
    await _send(client, indices.helpdesk, ((each["article_id"], each) for each in articles()))
    await client.indices.put_settings(index=indices.shipments, body={"index": {"refresh_interval": "-1"}})
    documents = ((each["shipment_id"], each) for each in wanted.shipments())
    await _send(client, indices.shipments, documents, tell=tell)
    await client.indices.put_settings(index=indices.shipments, body={"index": {"refresh_interval": None}})
    await client.indices.refresh(index=",".join(indices.bodies()))
    meta = {**_marked(indices.bodies()[indices.shipments])["mappings"]["_meta"], "loaded": wanted.to_json()}
    await client.indices.put_mapping(index=indices.shipments, body={"_meta": meta})


async def is_loaded(client: "AsyncOpenSearch", indices: Indices, wanted: DataSet) -> bool:
    """Tells whether the indices hold these shipments whole."""
    meta = await _meta(client, indices.shipments)
    return meta is not None and meta.get("loaded") == wanted.to_json()


def articles() -> list[Mapping[str, Any]]:
    """Returns the documents of the helpdesk, as they are indexed."""
    written = yaml.safe_load(_ARTICLES.read_text(encoding="utf-8"))
    return [
        {"article_id": each["id"], "title": each["title"], "body": each["body"], "tags": each["tags"]}
        for each in written
    ]


async def _refuse_foreign(client: "AsyncOpenSearch", index: str) -> None:
    meta = await _meta(client, index)
    if meta is not None and meta.get("made_by") != _MADE_BY:
        raise NotOurs(
            f"there is an index {index!r} that was not made by a load of shipments: name another prefix "
            "(--prefix, DAGWRIGHT_OPENSEARCH_PREFIX), or delete it"
        )


async def _meta(client: "AsyncOpenSearch", index: str) -> Mapping[str, Any] | None:
    """Returns what the mapping of an index says of it; None if there is no such index."""
    # What is expected to be missing now and then is not to be logged as a failure.
    found = await client.indices.get_mapping(index=index, ignore=404)
    if "error" in found:
        return None
    (mapping,) = found.values()
    meta: Mapping[str, Any] = mapping["mappings"].get("_meta", {})
    return meta


def _marked(body: Mapping[str, Any]) -> dict[str, Any]:
    mappings = body["mappings"]
    return {**body, "mappings": {**mappings, "_meta": {**mappings.get("_meta", {}), "made_by": _MADE_BY}}}


async def _send(
    client: "AsyncOpenSearch",
    index: str,
    documents: Iterable[tuple[str, Mapping[str, Any]]],
    *,
    tell: Tell | None = None,
) -> None:
    """Sends documents in portions: while the server works on one, the next is made."""
    sent, under_way = 0, None
    for portion in _portions(documents):
        lines = "".join(_lines(portion))
        if under_way is not None:
            await under_way
        under_way = asyncio.create_task(_send_portion(client, index, lines))
        # The task has to get as far as the socket before the next portion is made.
        await asyncio.sleep(0)
        sent += len(portion)
        if tell is not None:
            tell(sent)
    if under_way is not None:
        await under_way


async def _send_portion(client: "AsyncOpenSearch", index: str, lines: str) -> None:
    answer = await client.bulk(index=index, body=lines, request_timeout=120)
    if answer["errors"]:
        (refused, *_) = [item["index"] for item in answer["items"] if "error" in item["index"]]
        raise LoadFailed(f"the server refused document {refused['_id']!r} of {index!r}: {refused['error']['reason']}")


def _portions(
    documents: Iterable[tuple[str, Mapping[str, Any]]],
) -> Iterator[list[tuple[str, Mapping[str, Any]]]]:
    rest = iter(documents)
    while portion := list(islice(rest, _PORTION)):
        yield portion


def _lines(portion: list[tuple[str, Mapping[str, Any]]]) -> Iterator[str]:
    for name, document in portion:
        yield f'{{"index":{{"_id":{json.dumps(name)}}}}}\n{json.dumps(document)}\n'
