"""Updates of a run, as the subscriptions of the gateway receive them."""

from collections.abc import AsyncGenerator

from dagwright.core.model.states import NodeStatus
from dagwright.history.moment_facts import TaskState
from dagwright.history.run_subscriptions import RunUpdate
from dagwright.history.run_view import RunView


def update(view: RunView, **states: NodeStatus) -> RunUpdate:
    return RunUpdate(view, tuple(states), {name: TaskState(status, 1, None) for name, status in states.items()})


async def async_updates(*updates: RunUpdate | Exception) -> AsyncGenerator[RunUpdate, None]:
    """Yield updates, or raise the exception among them."""
    for each in updates:
        if isinstance(each, Exception):
            raise each
        yield each
