"""Large values of calls: loads them from the payload store for arguments, and keeps results there.

One `Values` serves all calls of a worker. Many calls often read parts of the same value, so what was loaded stays in
memory for a while, within a limit.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import pydantic_core

from dagwright.core.expressions.hydration import MisplacedBinding, hydrate, secret_names, stored_refs, value_at_paths
from dagwright.core.expressions.projection import describe
from dagwright.core.expressions.resolution import UnresolvedReference
from dagwright.core.expressions.stored_values import Path, Projection, StoredValue
from dagwright.store import PayloadDamaged, PayloadMissing, PayloadStore, StoreUnavailable
from dagwright.tools.errors import InvalidArguments, MissingPart, ResultNotKept, ValueLost, ValueNotLoaded

T = TypeVar("T")

KEPT_BYTES = 64 * 1024 * 1024
"""JSON that stays in memory; as objects it takes several times as much."""
PATIENCE_S = (0.2, 0.5, 1.0, 2.0, 4.0)
"""Pauses before the store is asked again. An outage of some seconds costs no attempt of a call, whose effect may have
happened; for a longer one the call fails, and Temporal's policy decides."""


FAILURE_KEPT_WITHIN_S = 5.0
"""How long a failure is held up so that its whole text can be kept."""


class Loaded:
    """A value of the store in memory."""

    __slots__ = ("_parsed", "content")

    def __init__(self, content: bytes) -> None:
        self.content = content
        self._parsed: Any = None

    def take(self, paths: Sequence[Path], name: str) -> Any:
        """Returns a part that belongs to the caller, who may change it."""
        if not paths:
            return pydantic_core.from_json(self.content)
        if self._parsed is None:
            self._parsed = pydantic_core.from_json(self.content)
        part = value_at_paths(self._parsed, paths, name)
        return (
            part if isinstance(part, str | int | float | None) else pydantic_core.from_json(pydantic_core.to_json(part))
        )


Load = Callable[[Sequence[str]], Mapping[str, Loaded]]
"""References -> the values, for a thread that can wait."""


def put_in(
    arguments: Any, bindings: Sequence[Any], *, secrets: Mapping[str, str], loaded: Mapping[str, Loaded]
) -> None:
    """Puts what is missing into the arguments of a call, in place.

    Raises:
        InvalidArguments: a binding is at a place that the arguments do not have.
        MissingPart: a reference leads nowhere in a stored value.
    """

    def take(ref: str, paths: Sequence[Path], name: str) -> Any:
        return loaded[ref].take(paths, name)

    try:
        hydrate(arguments, bindings, secrets=secrets, take=take)
    except MisplacedBinding as error:
        raise InvalidArguments(f"Invalid arguments: {error}") from None
    except UnresolvedReference as error:
        raise MissingPart(str(error)) from None


class Values:
    """The large values of all calls of a worker.

    Args:
        store: the payload store.
        patience_s: pauses before the store is asked again.
    """

    def __init__(self, store: PayloadStore, *, patience_s: Sequence[float] = PATIENCE_S) -> None:
        self._store = store
        self._patience_s = patience_s
        self._kept: OrderedDict[str, Loaded] = OrderedDict()
        self._kept_bytes = 0
        self._loading: dict[str, asyncio.Task[Loaded]] = {}

    async def fill(self, arguments: Any, bindings: Sequence[Any], *, secrets: Mapping[str, str]) -> None:
        """Puts what is missing into the arguments of a call, in place.

        Raises:
            ValueNotLoaded: the store does not answer.
            ValueLost: a value is gone or damaged.
            InvalidArguments: a binding is at a place that the arguments do not have.
            MissingPart: a reference leads nowhere in a stored value.
        """
        refs = stored_refs(bindings)
        loaded = await self.load(refs)
        if not refs:
            put_in(arguments, bindings, secrets=secrets, loaded=loaded)
        else:
            # Seconds for a hundred megabytes, in which no other call of the worker could heartbeat.
            await asyncio.to_thread(put_in, arguments, bindings, secrets=secrets, loaded=loaded)

    async def filled(
        self, arguments: Sequence[Any], bindings: Sequence[Any], *, expected: str, no_secrets: str
    ) -> dict[str, Any]:
        """Returns the one object that an activity takes, with the stored values that belong into it.

        Args:
            arguments: of the activity; anything may have been given.
            expected: what is said of other arguments than one object.
            no_secrets: what is said of a binding for a secret.

        Raises:
            InvalidArguments: the arguments are other ones, a binding is for a secret, or is at a place that there is
                not.
            ValueNotLoaded, ValueLost, MissingPart: as in `fill`.
        """
        if len(arguments) != 1 or not isinstance(arguments[0], dict):
            raise InvalidArguments(f"Invalid arguments: {expected}")
        if secret_names(bindings):
            raise InvalidArguments(f"Invalid arguments: {no_secrets}")
        given: dict[str, Any] = arguments[0]
        if bindings:
            await self.fill(given, bindings, secrets={})
        return given

    async def load(self, refs: Sequence[str]) -> dict[str, Loaded]:
        """Returns reference -> value.

        Raises:
            ValueNotLoaded: the store does not answer.
            ValueLost: a value is gone or damaged.
        """
        return dict(zip(refs, await asyncio.gather(*map(self._load, refs)), strict=True))

    async def _load(self, ref: str) -> Loaded:
        if ref in self._kept:
            self._kept.move_to_end(ref)
            return self._kept[ref]
        if ref not in self._loading:
            self._loading[ref] = asyncio.create_task(self._fetch(ref))
            self._loading[ref].add_done_callback(lambda task: self._loaded(ref, task))
        # Others may wait for the same value, so a call that is cancelled does not stop the loading.
        return await asyncio.shield(self._loading[ref])

    async def _fetch(self, ref: str) -> Loaded:
        try:
            return Loaded(await self._patiently(lambda: self._store.get(ref)))
        except StoreUnavailable as error:
            raise ValueNotLoaded(f"a value that the arguments need could not be loaded: {error}") from None
        except (PayloadMissing, PayloadDamaged) as error:
            raise ValueLost(f"a value that the arguments need is lost: {error}") from None

    def _loaded(self, ref: str, task: "asyncio.Task[Loaded]") -> None:
        del self._loading[ref]
        if task.cancelled() or task.exception() is not None:
            return
        self._kept[ref] = task.result()
        self._kept_bytes += len(task.result().content)
        while self._kept_bytes > KEPT_BYTES:
            _, oldest = self._kept.popitem(last=False)
            self._kept_bytes -= len(oldest.content)

    async def keep(self, value: Any, encoded: bytes, *, wanted: Sequence[Projection], name: str) -> StoredValue:
        """Puts a result into the store and returns what the run is told of it.

        Raises:
            ResultNotKept: the store does not take it.
        """
        try:
            ref = await self._patiently(lambda: self._store.put(encoded))
        except StoreUnavailable as error:
            message = f"the tool has done its work, but its result could not be kept: {error}"
            raise ResultNotKept(message, size_bytes=len(encoded)) from None
        return await asyncio.to_thread(describe, value, ref, size_bytes=len(encoded), wanted=wanted, name=name)

    async def put(self, content: bytes) -> str:
        """Puts content of a call's own into the store and returns its reference.

        Raises:
            ResultNotKept: the store does not take it.
        """
        try:
            return await self._patiently(lambda: self._store.put(content))
        except StoreUnavailable as error:
            message = f"the call is done, but what was said could not be kept: {error}"
            raise ResultNotKept(message, size_bytes=len(content)) from None

    async def keep_failure(self, told: Mapping[str, str]) -> str | None:
        """Puts the whole text of a failure into the store and returns its reference.

        `None` if the store does not take it at once: the failure itself is what counts, and it has the beginning.
        """
        with suppress(StoreUnavailable, TimeoutError):
            async with asyncio.timeout(FAILURE_KEPT_WITHIN_S):
                return await self._store.put(pydantic_core.to_json(told))
        return None

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        for pause_s in self._patience_s:
            try:
                return await ask()
            except StoreUnavailable:
                await asyncio.sleep(pause_s)
        return await ask()
