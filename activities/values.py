"""Load large arguments of calls from the payload store, and store large results.

One `LargeValues` serves all calls of a worker. Many calls read parts of the same value, so loaded values are cached in
memory within a size limit.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import pydantic_core

from dagwright.core.expressions.hydration import MisplacedBinding, hydrate, secret_names, stored_refs, value_at_paths
from dagwright.core.expressions.projection import project_value
from dagwright.core.expressions.references import UnresolvedReference
from dagwright.core.expressions.stored_values import Path, Projection, StoredValue
from dagwright.store import PayloadDamaged, PayloadMissing, PayloadStore, StoreUnavailable
from dagwright.tools.errors import ArgumentNotLoaded, InvalidArguments, MissingPart, ResultNotStored, ValueLost

T = TypeVar("T")

MAX_CACHE_BYTES = 64 * 1024 * 1024
"""Cache limit in bytes of JSON; the parsed values take several times as much memory."""
RETRY_PAUSES_S = (0.2, 0.5, 1.0, 2.0, 4.0)
"""Pauses before the store is queried again. A call survives an outage of a few seconds without a new attempt: a
new attempt could repeat the effect of the call. In a longer outage the attempt fails, and Temporal's retry policy
applies."""


FAILURE_TIMEOUT_S = 5.0
"""How long a failure may wait for its full text to be stored."""


class LoadedValue:
    """A stored value in memory."""

    __slots__ = ("_parsed_value", "content")

    def __init__(self, content: bytes) -> None:
        self.content = content
        self._parsed_value: Any = None

    def copy_part(self, paths: Sequence[Path], name: str) -> Any:
        """Return a copy of a part of the value."""
        if not paths:
            return pydantic_core.from_json(self.content)
        if self._parsed_value is None:
            self._parsed_value = pydantic_core.from_json(self.content)
        part = value_at_paths(self._parsed_value, paths, name)
        return (
            part if isinstance(part, str | int | float | None) else pydantic_core.from_json(pydantic_core.to_json(part))
        )


Load = Callable[[Sequence[str]], Mapping[str, LoadedValue]]
"""Blocking function that loads values by reference; call it in a thread."""


def hydrate_arguments(
    arguments: Any, bindings: Sequence[Any], *, secrets: Mapping[str, str], loaded_values: Mapping[str, LoadedValue]
) -> None:
    """Fill in the bindings of a call's arguments, in place.

    Raises:
        InvalidArguments: the arguments do not have the path of a binding.
        MissingPart: a stored value does not have the path of a reference.
    """

    def copy_part(ref: str, paths: Sequence[Path], name: str) -> Any:
        return loaded_values[ref].copy_part(paths, name)

    try:
        hydrate(arguments, bindings, secrets=secrets, load=copy_part)
    except MisplacedBinding as error:
        raise InvalidArguments(f"Invalid arguments: {error}") from None
    except UnresolvedReference as error:
        raise MissingPart(str(error)) from None


class LargeValues:
    """Load and store the large values of all calls of a worker.

    Args:
        store: the payload store.
        retry_pauses_s: pauses before the store is queried again.
    """

    def __init__(self, store: PayloadStore, *, retry_pauses_s: Sequence[float] = RETRY_PAUSES_S) -> None:
        self._store = store
        self._retry_pauses_s = retry_pauses_s
        self._cache: OrderedDict[str, LoadedValue] = OrderedDict()
        self._cache_bytes = 0
        self._load_tasks: dict[str, asyncio.Task[LoadedValue]] = {}

    async def hydrate(self, arguments: Any, bindings: Sequence[Any], *, secrets: Mapping[str, str]) -> None:
        """Fill in the bindings of a call's arguments, in place.

        Raises:
            ArgumentNotLoaded: the store does not respond.
            ValueLost: a value is missing or damaged.
            InvalidArguments: the arguments do not have the path of a binding.
            MissingPart: a stored value does not have the path of a reference.
        """
        refs = stored_refs(bindings)
        loaded_values = await self.load(refs)
        if not refs:
            hydrate_arguments(arguments, bindings, secrets=secrets, loaded_values=loaded_values)
        else:
            # Hydrating 100 MB takes seconds; on the event loop this would delay the heartbeats of all other calls.
            await asyncio.to_thread(
                hydrate_arguments, arguments, bindings, secrets=secrets, loaded_values=loaded_values
            )

    async def hydrate_input(
        self, arguments: Sequence[Any], bindings: Sequence[Any], *, shape_error: str, secrets_error: str
    ) -> dict[str, Any]:
        """Return the single JSON object that an activity takes, with its stored values filled in.

        Args:
            arguments: arguments of the activity, unchecked.
            shape_error: error message for anything other than one object.
            secrets_error: error message for a secret binding.

        Raises:
            InvalidArguments: there is not exactly one object, or a binding is for a secret or an invalid path.
            ArgumentNotLoaded, ValueLost, MissingPart: as in `hydrate`.
        """
        if len(arguments) != 1 or not isinstance(arguments[0], dict):
            raise InvalidArguments(f"Invalid arguments: {shape_error}")
        if secret_names(bindings):
            raise InvalidArguments(f"Invalid arguments: {secrets_error}")
        keywords: dict[str, Any] = arguments[0]
        if bindings:
            await self.hydrate(keywords, bindings, secrets={})
        return keywords

    async def load(self, refs: Sequence[str]) -> dict[str, LoadedValue]:
        """Return the value of each reference.

        Raises:
            ArgumentNotLoaded: the store does not respond.
            ValueLost: a value is missing or damaged.
        """
        return dict(zip(refs, await asyncio.gather(*map(self._load, refs)), strict=True))

    async def _load(self, ref: str) -> LoadedValue:
        if ref in self._cache:
            self._cache.move_to_end(ref)
            return self._cache[ref]
        if ref not in self._load_tasks:
            self._load_tasks[ref] = asyncio.create_task(self._fetch(ref))
            self._load_tasks[ref].add_done_callback(lambda task: self._add_to_cache(ref, task))
        # Other calls may wait for the same value, so cancelling a call does not stop the loading.
        return await asyncio.shield(self._load_tasks[ref])

    async def _fetch(self, ref: str) -> LoadedValue:
        try:
            return LoadedValue(await self._retry_request(lambda: self._store.get(ref)))
        except StoreUnavailable as error:
            raise ArgumentNotLoaded(f"a value of the arguments could not be loaded: {error}") from None
        except (PayloadMissing, PayloadDamaged) as error:
            raise ValueLost(f"a value of the arguments is lost: {error}") from None

    def _add_to_cache(self, ref: str, task: "asyncio.Task[LoadedValue]") -> None:
        del self._load_tasks[ref]
        if task.cancelled() or task.exception() is not None:
            return
        self._cache[ref] = task.result()
        self._cache_bytes += len(task.result().content)
        while self._cache_bytes > MAX_CACHE_BYTES:
            _, evicted_value = self._cache.popitem(last=False)
            self._cache_bytes -= len(evicted_value.content)

    async def store_result(
        self, value: Any, encoded: bytes, *, projections: Sequence[Projection], name: str
    ) -> StoredValue:
        """Put a result into the store and return its reference and projections.

        Raises:
            ResultNotStored: the store does not accept the result.
        """
        try:
            ref = await self._retry_request(lambda: self._store.put(encoded))
        except StoreUnavailable as error:
            message = f"the tool succeeded, but its result could not be stored: {error}"
            raise ResultNotStored(message, size_bytes=len(encoded)) from None
        return await asyncio.to_thread(
            project_value, value, ref, size_bytes=len(encoded), projections=projections, name=name
        )

    async def store_conversation(self, content: bytes) -> str:
        """Put the conversation of a model call into the store and return its reference.

        Raises:
            ResultNotStored: the store does not accept the conversation.
        """
        try:
            return await self._retry_request(lambda: self._store.put(content))
        except StoreUnavailable as error:
            message = f"the call succeeded, but its conversation could not be stored: {error}"
            raise ResultNotStored(message, size_bytes=len(content)) from None

    async def store_failure(self, failure: Mapping[str, str]) -> str | None:
        """Put the full text of a failure into the store and return its reference.

        Return `None` if the store does not accept the text at once: the failure itself contains the start of the text.
        """
        with suppress(StoreUnavailable, TimeoutError):
            async with asyncio.timeout(FAILURE_TIMEOUT_S):
                return await self._store.put(pydantic_core.to_json(failure))
        return None

    async def _retry_request(self, store_request: Callable[[], Awaitable[T]]) -> T:
        for pause_s in self._retry_pauses_s:
            try:
                return await store_request()
            except StoreUnavailable:
                await asyncio.sleep(pause_s)
        return await store_request()
