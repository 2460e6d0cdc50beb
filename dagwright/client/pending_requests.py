"""What a run asks of people while somebody looks at it: its own requests at once, those of its sub-plans soon after."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from temporalio.service import RPCError

from dagwright.client.feedback import People, has_sub_plans, requests_in
from dagwright.history.run_reader import RunView

_PAUSE_S = 2.0
"""Between two looks at the sub-plans: each reads the histories of those that wait."""


class Asked:
    """The open requests of one run and its sub-plans.

    Args:
        people: the requests of its namespace.
        workflow_id: id of the run.
    """

    def __init__(self, people: People, workflow_id: str) -> None:
        self._people = people
        self._workflow_id = workflow_id
        self._below: Sequence[Mapping[str, Any]] = ()
        self._look_at = 0.0

    async def in_view(self, view: RunView) -> list[Mapping[str, Any]]:
        """Returns what is asked now."""
        if not has_sub_plans(view):
            self._below = ()
        elif time.monotonic() >= self._look_at:
            # The picture goes on while the server is away.
            with suppress(RPCError):
                self._below = [one.document for one in await self._people.requests_below(self._workflow_id)]
            self._look_at = time.monotonic() + _PAUSE_S
        return [*requests_in(view), *self._below]
