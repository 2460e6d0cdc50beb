"""Puts the values of the payload store back into the document of a run, for whoever looks at it."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pydantic_core

from dagwright.contracts.documents import compact_value
from dagwright.feed import RESTORED_BYTES, RunView, shortened
from dagwright.plan.filling import fill, stored_refs, walk
from dagwright.plan.resolution import MissingData
from dagwright.plan.stored import Path, StoredValue, WorkerText, is_whole, unfilled_places
from dagwright.plan.unfilled import holes_of, shown_in_arguments, with_shown
from dagwright.store import PayloadDamaged, PayloadMissing, PayloadStore, StoreUnavailable

_LOADED_AT_ONCE = 8


async def restored_document(
    view: RunView, store: PayloadStore, *, full: bool = False, only: str | None = None
) -> dict[str, Any]:
    """Returns the result document of a run with its values put back, up to 1 MiB each.

    A value that cannot be had stands as a reference, and a note says why.

    Args:
        full: put back larger values as well.
        only: put back the result of this node alone.
    """
    document = view.unfilled_document()
    restorer = _Restorer(store, most_bytes=None if full else RESTORED_BYTES)
    if only is None:
        document["output"] = await restorer.restored(document["output"], ref="output", node=None)
    else:
        document["output"] = compact_value(document["output"], ref="output")
    for name, node in document["nodes"].items():
        if only in (None, name):
            node["result"] = await restorer.restored(node["result"], ref=f"node:{name}", node=name)
        else:
            node["result"] = compact_value(node["result"], ref=f"node:{name}")
    document["notes"] = [*document["notes"], *restorer.notes]
    return document


class _Restorer:
    """Fills the values of one document."""

    def __init__(self, store: PayloadStore, *, most_bytes: int | None) -> None:
        self._store = store
        self._most_bytes = most_bytes
        self.notes: list[dict[str, Any]] = []
        self._loaded: dict[str, Any] = {}
        """Reference -> value: the result of an item stands in the document more than once."""

    async def restored(self, value: Any, *, ref: str, node: str | None) -> Any:
        """Returns a value with everything put back, or what stands for it."""
        if is_whole(value):
            return value if self._most_bytes is None else shortened(value, ref=ref)
        if self._most_bytes is not None and _size_of(value) > self._most_bytes:
            return compact_value(value, ref=ref)
        try:
            filled = await self._filled(value)
        except (PayloadMissing, PayloadDamaged) as error:
            self._note("value_lost", str(error), node)
        except StoreUnavailable as error:
            self._note("store_unavailable", str(error), node)
        except MissingData as error:
            self._note("missing_data", str(error), node)
        else:
            return filled if self._most_bytes is None else shortened(filled, ref=ref)
        return compact_value(value, ref=ref)

    async def _filled(self, value: Any) -> Any:
        holes = [hole for hole in holes_of(value) if not _holds_secret(hole[1])]
        turns = asyncio.Semaphore(_LOADED_AT_ONCE)

        async def load(ref: str) -> None:
            async with turns:
                content = await self._store.get(ref)
            self._loaded[ref] = await asyncio.to_thread(pydantic_core.from_json, content)

        await asyncio.gather(*(load(ref) for ref in stored_refs(holes) if ref not in self._loaded))

        def take(ref: str, paths: Sequence[Path], name: str) -> Any:
            return walk(self._loaded[ref], paths, name)

        filled = [with_shown(value, shown_in_arguments)]
        fill(filled, [((0, *path), parts) for path, parts in holes], secrets={}, take=take)
        return filled[0]

    def _note(self, code: str, message: str, node: str | None) -> None:
        self.notes.append({"code": code, "node": node, "message": f"{node or 'output'}: {message}"})


def _size_of(value: Any) -> int:
    """Returns about how many bytes a value has with everything put back; what is not known counts as nothing."""
    return sum(map(_size_of_part, (part for _, part in unfilled_places(value))))


def _size_of_part(part: Any) -> int:
    if isinstance(part, WorkerText):
        return sum(_size_of_part(inner) for inner in part.parts if isinstance(inner, StoredValue))
    return part.shape.size_bytes if isinstance(part, StoredValue) and part.shape is not None else 0


def _holds_secret(parts: Sequence[Mapping[str, Any]]) -> bool:
    return any("secret" in part for part in parts)
