"""Search attributes of a run: its state, and the assignees that it waits for.

Each write is an event and work for the server, so they are written when they change, at most once in five seconds, and
at the end. The first assignee is written at once, so that it is found without delay.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from temporalio import workflow
from temporalio.common import SearchAttributeKey, SearchAttributeUpdate

from dagwright.core.boundary import wire
from dagwright.core.boundary.limits import SEARCH_UPDATE_PAUSE_S
from dagwright.core.model.states import RunStatus

_STATE = SearchAttributeKey.for_keyword(wire.SEARCH_STATE)
_AWAITING = SearchAttributeKey.for_keyword_list(wire.SEARCH_AWAITING)


class SearchAttributes:
    """Search attributes of one run, if its namespace has them: a run that sets an undefined attribute is stuck."""

    def __init__(self) -> None:
        given = workflow.info().typed_search_attributes
        self._state = given.get(_STATE)
        self._awaiting = list(given.get(_AWAITING) or ())
        self.are_there = self._state is not None
        """Whether the namespace has them, as far as known."""
        self._written_at: float | None = None
        self._timer: asyncio.Task[None] | None = None

    def found(self) -> None:
        """Record that the namespace has them, although the client that started the run did not set them."""
        if not self.are_there:
            self.are_there = True
            self._write(RunStatus.RUNNING.value, [])

    def tell(self, state: str, awaiting: list[str], *, at: float, wake: Callable[[], None]) -> None:
        """Write state and assignees now or as soon as possible; the first assignee is written at once.

        Args:
            wake: called when the method has to be called again.
        """
        asks = bool(awaiting) and not self._awaiting
        if not self.are_there or (state, awaiting) == (self._state, self._awaiting):
            return
        if self._timer is not None and not asks:
            return
        left_s = 0.0 if self._written_at is None or asks else self._written_at + SEARCH_UPDATE_PAUSE_S - at
        if left_s <= 0:
            self._written_at = at
            self._write(state, awaiting)
            return

        def passed(timer: "asyncio.Task[None]") -> None:
            self._timer = None
            if not timer.cancelled():
                wake()

        self._timer = asyncio.create_task(workflow.sleep(left_s, summary=wire.TIMER_SEARCH_UPDATE))
        self._timer.add_done_callback(passed)

    def tell_end(self, state: str) -> None:
        """Write the final state, without assignees."""
        self.rest()
        if self.are_there:
            self._write(state, [])

    def rest(self) -> None:
        """Cancel a pending write: the run ends, or continues as new."""
        if self._timer is not None:
            self._timer.cancel()

    def _write(self, state: str, awaiting: list[str]) -> None:
        updates: list[SearchAttributeUpdate[Any]] = [_STATE.value_set(state)]
        if awaiting:
            updates.append(_AWAITING.value_set(awaiting))
        elif self._awaiting:
            updates.append(_AWAITING.value_unset())
        self._state, self._awaiting = state, awaiting
        workflow.upsert_search_attributes(updates)
