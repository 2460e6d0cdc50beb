"""A large plan as its pages come, one activity's result after the other."""

from typing import Any

from dagwright.core.boundary.packing import unpack
from dagwright.core.compiler.node_columns import nodes_from_columns
from dagwright.core.model.compiled import CompiledPlan
from dagwright.protocol.messages import plan_of_pages


class PagedPlan:
    """The pages of one plan.

    Args:
        count: how many there are.
    """

    def __init__(self, count: int = 0) -> None:
        self.count = count
        self._pages: dict[int, Any] = {}
        """Under the events that asked for them, in plan order; `None` until they are here."""

    def expect(self, event_id: int) -> None:
        """Takes note that the next page was asked for."""
        self._pages[event_id] = None

    def take(self, event_id: int, page: Any) -> CompiledPlan | None:
        """Takes a page; returns the plan if it was the last one, and if they are one: the run says why if not."""
        self._pages[event_id] = page
        if len(self._pages) < self.count or None in self._pages.values():
            return None
        try:
            head, *pages = map(unpack, self._pages.values())
            plan = plan_of_pages(head, [node for page in pages for node in nodes_from_columns(page)])
        except ValueError:
            return None
        self._pages = {}
        return plan
