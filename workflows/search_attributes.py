"""Search attributes and memo of a run, used by lists of runs: its state, progress, assignees, requests and error.

Each write is an event and work for the server, so the attributes are written when they change, at most once in five
seconds, and at the end. The first assignee is written at once, so that the assignee finds the run without delay. If
only the progress has changed, no timer is started for the write: the progress is written in a workflow task that the
run needs anyway, at most once in 30 seconds.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from temporalio import workflow
from temporalio.common import SearchAttributeKey, SearchAttributePair, SearchAttributeUpdate

from dagwright.core.boundary import wire
from dagwright.core.boundary.limits import MIN_PROGRESS_UPDATE_PAUSE_S, MIN_SEARCH_UPDATE_PAUSE_S
from dagwright.core.model.states import RunStatus
from dagwright.features.run_scheduler import RunScheduler
from dagwright.protocol.listings import (
    RequestsVersion,
    awaited_assignees,
    error_to_json,
    progress_of,
    requests_to_json,
    requests_version,
)
from dagwright.protocol.run_attributes import PROGRESS, STATE, attributes_from_memo

_ASSIGNEES = SearchAttributeKey.for_keyword_list(wire.SEARCH_AWAITING)

_NO_REQUESTS: RequestsVersion = (0, ())


class SearchAttributes:
    """Writer of the search attributes of one run.

    Nothing is written if the namespace does not define the attributes: a run that sets an undefined attribute is stuck.
    """

    def __init__(self) -> None:
        info = workflow.info()
        attributes = info.typed_search_attributes
        self._state = attributes.get(STATE)
        self._assignees = list(attributes.get(_ASSIGNEES) or ())
        self._progress = attributes.get(PROGRESS)
        # If the previous execution left assignees, the memo has its requests. `None` differs from every version, so the
        # next `publish` writes the requests again.
        self._requests: RequestsVersion | None = None if self._assignees else _NO_REQUESTS
        self._is_sub_plan = wire.MEMO_ROOT in info.raw_memo
        self._tags_memo: Mapping[str, Any] = {}
        """Memo with only the tags, which the next write sets as search attributes; empty if no tags have to be set."""
        self._are_defined = self._state is not None
        self._written_at: float | None = None
        self._timer: asyncio.Task[None] | None = None

    def mark_as_defined(self, memo: Mapping[str, Any]) -> None:
        """Record that the namespace defines the attributes, although the client that started the run did not set them.

        The memo has the tags and the title of the run. Search attributes are never encrypted, but the title may be
        confidential. So only the tags become search attributes.

        Args:
            memo: memo of the run.
        """
        if not self._are_defined:
            self._are_defined, self._tags_memo = True, {wire.MEMO_TAGS: memo.get(wire.MEMO_TAGS)}

    def publish(
        self, state: str, scheduler: RunScheduler, *, title: str | None, at: float, wake: Callable[[], None]
    ) -> None:
        """Write changed attributes now, or after the pause that must follow the last write.

        The first assignee is written now, without the pause.

        Args:
            wake: called when the method has to be called again.
        """
        if not self._are_defined:
            return
        if self._written_at is None and self._state is not None:
            # The attributes were set when the run started. No pause has to follow this write, so the first change is
            # written at once.
            self._written_at = at - MIN_SEARCH_UPDATE_PAUSE_S
        assignees, requests = awaited_assignees(scheduler), requests_version(scheduler)
        if (state, assignees, requests) == (self._state, self._assignees, self._requests):
            if self._written_at is None or at - self._written_at >= MIN_PROGRESS_UPDATE_PAUSE_S:
                self._written_at = at
                self._write(state, assignees, progress=str(progress_of(scheduler)))
            return
        # Also true for the first assignee after a time without assignees.
        is_first_assignee = bool(assignees) and not self._assignees
        if self._timer is not None and not is_first_assignee:
            return
        remaining_s = (
            0.0 if self._written_at is None or is_first_assignee else self._written_at + MIN_SEARCH_UPDATE_PAUSE_S - at
        )
        if remaining_s > 0:
            self._write_later(remaining_s, wake)
            return
        self._written_at = at
        self._write(state, assignees, progress=str(progress_of(scheduler)))
        if requests != self._requests:
            self._requests = requests
            # Without an assignee, no client reads the requests in the memo.
            if assignees:
                workflow.upsert_memo({wire.MEMO_REQUESTS: requests_to_json(scheduler, title=title)})

    def publish_end(self, document: Mapping[str, Any], scheduler: RunScheduler | None) -> None:
        """Write the final state, without assignees, and the error of a failed run.

        Args:
            document: result document of the run.
            scheduler: `None` if the run ended before it had a plan.
        """
        self.cancel_pending()
        if not self._are_defined:
            return
        progress = None if scheduler is None else str(progress_of(scheduler))
        self._write(document["status"], [], progress=progress)
        is_failed = document["status"] == RunStatus.FAILED.value
        # Sub-plans are not listed.
        if is_failed and not self._is_sub_plan and (error := error_to_json(document)) is not None:
            workflow.upsert_memo({wire.MEMO_ERROR: error})

    def cancel_pending(self) -> None:
        """Cancel a pending write: the run ends, or continues as new."""
        if self._timer is not None:
            self._timer.cancel()

    def _write_later(self, remaining_s: float, wake: Callable[[], None]) -> None:
        def on_timer(timer: "asyncio.Task[None]") -> None:
            self._timer = None
            if not timer.cancelled():
                wake()

        self._timer = asyncio.create_task(workflow.sleep(remaining_s, summary=wire.TIMER_SEARCH_UPDATE))
        self._timer.add_done_callback(on_timer)

    def _write(self, state: str, assignees: list[str], *, progress: str | None) -> None:
        updates: list[SearchAttributeUpdate[Any]] = []
        if state != self._state:
            updates.append(STATE.value_set(state))
        if progress not in (None, self._progress) and not self._is_sub_plan:
            updates.append(PROGRESS.value_set(progress))
        if assignees != self._assignees:
            updates.append(_ASSIGNEES.value_set(assignees) if assignees else _ASSIGNEES.value_unset())
        pairs: list[SearchAttributePair[Any]] = [*attributes_from_memo(self._tags_memo)]
        updates += [pair.key.value_set(pair.value) for pair in pairs]
        self._state, self._assignees, self._progress, self._tags_memo = (
            state,
            assignees,
            progress or self._progress,
            {},
        )
        if updates:
            workflow.upsert_search_attributes(updates)
