"""A fake run with a scripted history, answer and requests, for tests of the gateway without a Temporal server."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx

from dagwright.client.starts import StartRequest
from dagwright.core.model.compiled import CompiledPlan
from dagwright.core.model.states import NO_USAGE, NodeStatus, Record
from dagwright.history.executions import Cursor, RunNotFound
from dagwright.history.moment_facts import TaskState, has_started
from dagwright.history.run_subscriptions import RunUpdate, SubscriptionCursor
from dagwright.history.run_view import RunView
from dagwright.history.text_stream import DeliveredText, PartialText, TextMark, TextPart
from dagwright.interfaces.http.app import create_app
from dagwright.interfaces.http.context import GatewayContext, open_context
from dagwright.protocol.failures import run_error_of
from dagwright.server import Connection, Server
from dagwright.settings import Settings
from dagwright.toolset.toolset import load_toolset
from tests.support.http_servers import serve_for_client
from tests.support.templates import load_templates

RUN_ID = "run-1"


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the run: its last event, the status and attempts of each node, and the open requests."""

    event: int
    states: Mapping[str, tuple[NodeStatus, int]]
    status: str = "running"
    requests: Sequence[Mapping[str, Any]] = ()


@dataclass(slots=True)
class ScriptedRun:
    """The run as one gateway sees it.

    Args:
        steps: in order; at the last step, the run has ended or has an open request.
        texts: the partial answer at each poll.
        answer: the output of the run.
        first_step: index of the first step that this gateway sees.
        skipped_polls: number of polls of the answer before this gateway starts.
        started_ids: IDs of the runs that this gateway has started.
        turn_results: node ID of an agent's turn -> result of the turn.
    """

    steps: Sequence[Step]
    texts: Sequence[PartialText]
    answer: str
    first_step: int = 0
    skipped_polls: int = 0
    started_ids: list[str] = field(default_factory=list)
    turn_results: Mapping[str, str] = field(default_factory=dict)

    async def subscribe(
        self, run_id: str, *, after: SubscriptionCursor | None = None
    ) -> AsyncGenerator[RunUpdate, None]:
        known_states = self._states(self._step_at(after.cursor)) if after is not None else {}
        resume_step = self.steps.index(self._step_at(after.cursor)) if after is not None else 0
        for number in range(max(self.first_step, resume_step), len(self.steps)):
            states = self._states(self.steps[number])
            changed_tasks = tuple(task for task, state in states.items() if known_states.get(task) != state)
            yield RunUpdate(self._view(number), changed_tasks, {task: states[task] for task in changed_tasks})
            known_states = states
            await asyncio.sleep(0)

    async def parts(self, run_id: str, delivered_text: DeliveredText) -> AsyncIterator[TextPart]:
        for partial_text in self.texts[self.skipped_polls :]:
            if (part := delivered_text.next_part(partial_text)) is not None:
                yield part
            await asyncio.sleep(0)

    async def was_superseded(self, run_id: str, mark: TextMark) -> bool:
        return mark.call_id in self.turn_results and not mark.is_prefix_of(self.turn_results[mark.call_id])

    def reader(self, run_id: str) -> Any:
        return self

    async def started_tasks_at(self, cursor: Cursor) -> set[str]:
        step = self._step_at(cursor)
        states = self._states(step)
        return {task for task, state in states.items() if has_started(state, _record(step, task))}

    async def read(self) -> RunView:
        return self._view(len(self.steps) - 1)

    async def document(self, view: RunView) -> dict[str, Any]:
        document: dict[str, Any] = {
            "run_id": RUN_ID,
            "status": view.status,
            "output": self.answer,
            "error": None,
            "nodes": {},
        }
        return {**document, "error": run_error_of(document)}

    async def session_name_of(self, run_id: str) -> str | None:
        if not await self.exists(run_id):
            raise RunNotFound(f"there is no run {run_id!r}")
        return None

    async def exists(self, run_id: str) -> bool:
        return run_id == RUN_ID or run_id in self.started_ids

    async def start(self, request: StartRequest) -> None:
        self.started_ids.append(str(request.run_id))

    @property
    def feedback(self) -> Any:
        """The requests of the run, which are never answered."""
        return SimpleNamespace(requests_of=self._requests_of)

    def requests_at(self, view: RunView) -> list[Mapping[str, Any]]:
        return [*self._step_at(view.cursor).requests]

    async def _requests_of(self, run_id: str) -> list[Any]:
        return [SimpleNamespace(document=request, request_ref=None) for request in self.steps[-1].requests]

    def _view(self, number: int) -> RunView:
        step, next_step = self.steps[number], self.steps[min(number + 1, len(self.steps) - 1)]
        # The reader may be one step ahead of the reported events.
        scheduler = SimpleNamespace(
            record_of=lambda task: _record(next_step, task),
            plan=CompiledPlan(()),
            records=[],
            state=SimpleNamespace(
                node_of=lambda task: SimpleNamespace(title=task.title(), tool="calculator"),
                totals=SimpleNamespace(usage=SimpleNamespace(total=NO_USAGE)),
            ),
        )
        is_closed = step is self.steps[-1] and not step.requests
        view = RunView(RUN_ID, "first", step.status, "Told", cast("Any", scheduler), {}, 1.0, None, is_closed=is_closed)
        return replace(view, cursor=Cursor(1, step.event))

    def _step_at(self, cursor: Cursor) -> Step:
        past_steps = [step for step in self.steps if step.event <= cursor.event]
        return past_steps[-1] if past_steps else Step(0, {})

    def _states(self, step: Step) -> dict[str, TaskState]:
        return {task: TaskState(status, attempts, None) for task, (status, attempts) in step.states.items()}


def _record(step: Step, task: str) -> Record:
    status, attempts = step.states.get(task, (NodeStatus.PENDING, 0))
    is_started = status not in (NodeStatus.PENDING, NodeStatus.READY)
    return Record(status, attempts=attempts, started_at=2.0 if is_started else None)


class FakeRequestPoller:
    """Fake `RequestPoller` of a scripted run."""

    def __init__(self, feedback: Any, run_id: str) -> None:
        self._run: ScriptedRun = feedback.requests_of.__self__

    async def read(self, view: RunView) -> list[Mapping[str, Any]]:
        return self._run.requests_at(view)


@asynccontextmanager
async def scripted_context(
    run: ScriptedRun, folder: Path, *, plans: Path | None = None
) -> AsyncIterator[GatewayContext]:
    settings = Settings(state_dir=folder, model="small")
    toolset = load_toolset(settings, ())
    connection = Connection(cast("Any", None), Server("nowhere", "default"), frozenset())
    templates = load_templates(plans, toolset.declarations()) if plans is not None else {}
    runs = SimpleNamespace(
        subscriptions=run,
        token_streams=run,
        reader=run.reader,
        feedback=run.feedback,
        document=run.document,
        session_name_of=run.session_name_of,
        exists=run.exists,
        start=run.start,
    )
    async with open_context(settings, connection, toolset, templates=templates) as context:
        yield replace(context, runs=cast("Any", runs))


@asynccontextmanager
async def scripted_gateway(
    run: ScriptedRun, folder: Path, *, plans: Path | None = None
) -> AsyncIterator[httpx.AsyncClient]:
    """Run a gateway inside the block; yield a client for it."""
    async with (
        scripted_context(run, folder, plans=plans) as context,
        serve_for_client(create_app(context), stop_event=context.stop_event) as http,
    ):
        yield http


def approval_requests(names: Collection[str]) -> list[dict[str, Any]]:
    opened_at = "2026-01-01T00:00:00Z"
    return [
        {"request_id": name, "type": "APPROVAL", "prompt": f"{name.title()}?", "opened_at": opened_at} for name in names
    ]
