"""Live progress of a run: when the progress is drawn, and how it looks in notebooks and elsewhere."""

import asyncio
import io
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

import pytest

from dagwright.client import live_progress
from dagwright.client.live_progress import LineView, NotebookView, default_view, show_progress
from dagwright.core.model.states import NodeStatus
from dagwright.plans.drawing import Drawing, DrawnNode


@pytest.fixture(autouse=True)
def _short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_progress, "_MIN_INTERVAL_S", 0.01)
    monkeypatch.setattr(live_progress, "_TICK_S", 0.01)


def drawing_of(*states: str) -> Drawing:
    nodes = []
    for number, state in enumerate(states):
        duration_s = None if state == "pending" else 1.5
        nodes.append(DrawnNode(f"n{number}", executor="stock", status=NodeStatus(state), duration_s=duration_s))
    return Drawing(nodes, [], title="Refill", status="running")


@dataclass
class ScriptedRun:
    """A run whose drawing changes with each event. `error` is raised after the last event."""

    drawings: list[Drawing]
    error: Exception | None = None
    close_count: int = 0
    draw_event: asyncio.Event = field(default_factory=asyncio.Event)

    async def events(self) -> AsyncGenerator[object, None]:
        try:
            while len(self.drawings) > 1:
                self.draw_event.clear()
                await self.draw_event.wait()
                self.drawings.pop(0)
                yield object()
            if self.error is not None:
                raise self.error
        finally:
            self.close_count += 1

    async def draw(self) -> Drawing:
        self.draw_event.set()
        return self.drawings[0]


@dataclass
class RecordingView:
    shown_states: list[str] = field(default_factory=list)

    def show(self, drawing: Drawing) -> None:
        self.shown_states.append(" ".join(str(node.status) for node in drawing.nodes))


def run_of(**fields: Any) -> ScriptedRun:
    return ScriptedRun([drawing_of("pending"), drawing_of("running"), drawing_of("completed")], **fields)


async def test_every_change_is_shown_until_the_end() -> None:
    run, view = run_of(), RecordingView()
    await show_progress(run, view=view)
    assert list(dict.fromkeys(view.shown_states)) == ["pending", "running", "completed"]
    assert run.close_count == 1


async def test_error_of_the_events_is_raised() -> None:
    run = run_of(error=LookupError("there is no run 'x'"))
    with pytest.raises(LookupError, match="there is no run 'x'"):
        await show_progress(run, view=RecordingView())


async def test_cancellation_ends_the_events() -> None:
    run = ScriptedRun([drawing_of("running")] * 2)
    progress_task = asyncio.create_task(show_progress(run, view=RecordingView()))
    await run.draw_event.wait()
    progress_task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await progress_task
    assert run.close_count == 1


def test_notebook_updates_one_output() -> None:
    updates: list[Any] = []

    class Handle:
        def update(self, drawing: Drawing) -> None:
            updates.append(drawing)

    def display(html: str) -> Handle:
        updates.append(html)
        return Handle()

    view = NotebookView(display)
    for state in ("running", "completed"):
        view.show(drawing_of(state))
    assert updates == [drawing_of("running").to_html(), drawing_of("completed")]


def test_lines_have_each_change_once() -> None:
    view = LineView(output := io.StringIO())
    for states in (("running", "pending"), ("completed", "running"), ("completed", "running")):
        view.show(drawing_of(*states))
    expected = ["running    n0  stock", "completed  n0  stock  1.5 s", "running    n1  stock"]
    assert output.getvalue().splitlines() == expected


def test_default_view_outside_of_notebooks_writes_lines() -> None:
    assert isinstance(default_view(), LineView)
