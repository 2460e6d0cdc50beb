"""Read, list and end sessions, and start turns in them.

The state of a session is read from the memo of its workflow, so reading needs no worker. A turn is prepared for a
version of the session. If the session has changed since then, the session rejects the turn, and the client
prepares the turn again.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from temporalio.client import (
    Client,
    WithStartWorkflowOperation,
    WorkflowExecution,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes, WorkflowIDConflictPolicy
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from dagwright.client.errors import RunIdInUse, SessionNotFound, TurnRejected
from dagwright.client.list_cursors import ListCursor, executions_from, page_size_for
from dagwright.client.run_lists import quote_literal, readable_memo
from dagwright.client.starts import EncodedStart, StartedRun, checked_run_id, new_run_id
from dagwright.core.boundary import wire
from dagwright.core.boundary.limits import WORKFLOW_TASK_S, summary_of
from dagwright.core.model.policy import Policy
from dagwright.core.model.states import RunStatus
from dagwright.core.model.times import format_time
from dagwright.history.executions import RunNotFound
from dagwright.protocol.run_attributes import STATE, TITLE, fair_priority
from dagwright.protocol.run_labels import keyword, queryable_prefix
from dagwright.protocol.sessions import SessionRecord, Turn, session_from_json, session_name_in, session_workflow_id
from dagwright.protocol.turns import TurnEnd, TurnStart, end_of_turn
from dagwright.server import Connection

if TYPE_CHECKING:
    from dagwright.client.runs import Runs

POLL_INTERVAL_S = 0.5
"""Interval, in seconds, between two reads of a session that a client waits for."""
TURN_TIMEOUT_S = 60.0
"""How long a turn waits for a worker, in seconds. A new worker needs some seconds to start."""
STATE_TIMEOUT_S = 3.0
"""How long to wait, in seconds, until the state of a session shows the end of a run or of the session."""
MAX_REJECTIONS = 100
"""Maximum number of times that a turn is prepared again because the session has accepted another turn first."""

_OUTDATED_CODES = ("session_changed", "session_busy", "session_ending")
"""Rejection codes of a turn that was prepared for an outdated state of the session."""
_UPDATE_LOST_STATUSES = (RPCStatusCode.ABORTED, RPCStatusCode.FAILED_PRECONDITION, RPCStatusCode.NOT_FOUND)
"""gRPC statuses for an update that no workflow task has handled. An overloaded server returns a different
status, after the SDK has retried for ten seconds.
"""

_SESSION = SearchAttributeKey.for_keyword(wire.SEARCH_SESSION)


@dataclass(frozen=True, slots=True)
class SessionView:
    """A session at one moment.

    Args:
        session: state of the session.
        is_open: whether the session accepts more turns.
        execution_id: ID of the newest execution; empty if the session does not exist yet.
    """

    session: SessionRecord
    is_open: bool = True
    execution_id: str = ""
    started_at: float | None = None

    @property
    def workflow_id(self) -> str:
        """Workflow ID of the session."""
        return session_workflow_id(self.session.name)

    def to_json(self) -> dict[str, Any]:
        """Return the document of the session."""
        status = self.session.status if self.is_open else "ended"
        document = {"workflow_id": self.workflow_id, "started_at": format_time(self.started_at)}
        return {**self.session.to_json(), "status": status, **document}

    def to_list_entry(self) -> dict[str, Any]:
        """Return the entry of the session in a list."""
        document, turns = self.to_json(), self.session.turns
        fields = ("session_id", "workflow_id", "status", "started_at")
        return {
            **{key: document[key] for key in fields},
            "turn_count": self.session.omitted_turns + len(turns),
            "last_request": turns[-1].request if turns else None,
            "last_run_id": turns[-1].run_id if turns else None,
        }


@dataclass(frozen=True, slots=True)
class PreparedTurn:
    """A turn that was prepared for a state of the session.

    Args:
        request: request in natural language.
        start: encoded start request of the turn's run.
        policy: new policy of the session; `None` leaves it unchanged.
    """

    request: str
    start: EncodedStart
    policy: Policy | None = None


PrepareTurn = Callable[[SessionRecord], Awaitable[PreparedTurn]]
"""Prepares a turn for the current state of the session."""
OnBusy = Callable[[Turn], None]
"""Callback for a running turn that has to end before this turn can start; called once for each such turn."""
EnsureServed = Callable[[], Awaitable[None]]
"""Callback that ensures that a worker serves a turn."""


async def _do_nothing() -> None:
    pass


class Sessions:
    """The sessions of one namespace.

    Args:
        connection: connection to the namespace.
        runs: runs of the same namespace.
        task_queue: task queue of the workflows.
        ensure_served: ensures that a worker is running; called after the checks of the client, before a turn is sent
            or an existing run is returned. The default does nothing, so a worker must be running already.
    """

    def __init__(
        self, connection: Connection, runs: "Runs", *, task_queue: str, ensure_served: EnsureServed = _do_nothing
    ) -> None:
        self._client: Client = connection.client
        self._runs = runs
        self._task_queue = task_queue
        self._ensure_served = ensure_served
        self._has_search_attributes = not connection.missing_search_attributes

    async def read(self, session_name: str) -> SessionView:
        """Return the open session with this name, or else a new, empty session.

        Raises:
            SessionNotFound: another workflow has the session's ID, or the session cannot be read.
        """
        view = await self._find_view(session_name)
        return view if view is not None and view.is_open else SessionView(SessionRecord(session_name))

    async def find(self, session_name: str) -> SessionView:
        """Return an existing session, open or ended.

        Raises:
            SessionNotFound: there is no such session.
        """
        view = await self._find_view(session_name)
        if view is None:
            raise SessionNotFound(f"there is no session {session_name!r}")
        if not view.is_open and (running_turn := view.session.running_turn) is not None:
            await self._add_outcome(view.session, running_turn.run_id)
        return view

    async def _add_outcome(self, session: SessionRecord, run_id: str) -> None:
        """Add the outcome of the last run to a session that was terminated before it received the outcome."""
        try:
            view = await self._runs.reader(run_id).read()
        except RunNotFound:
            end = TurnEnd(RunStatus.FAILED.value, outcome="the run is gone from the server")
            session.end_turn(run_id, end, at=time.time())
            return
        if view.ended_at is not None:
            session.end_turn(run_id, end_of_turn(view.document_with_refs(), view.scheduler), at=view.ended_at)

    async def with_full_answers(self, session: SessionRecord) -> SessionRecord:
        """Return a session with the full text of all answers. Long answers are read from the payload store.

        An answer that is no longer in the store remains truncated.
        """
        answer_refs = [(turn.run_id, turn.response_ref) for turn in session.turns if turn.response_ref is not None]
        full_texts = await asyncio.gather(*(self._runs.stored_text(ref) for _, ref in answer_refs))
        texts = {
            run_id: text.strip() for (run_id, _), text in zip(answer_refs, full_texts, strict=True) if text is not None
        }
        return session.with_answers(texts)

    async def page_of_sessions(
        self, *, limit: int = 100, prefix: str = "", after: ListCursor | None = None
    ) -> tuple[Sequence[SessionView], ListCursor | None]:
        """Return the newest sessions, and the cursor of the next page; `None` on the last page.

        Unreadable sessions are omitted.

        Args:
            prefix: prefix of the session names.
            after: where the page starts; `None` for the newest session.
        """
        query = f"WorkflowType = '{wire.WORKFLOW_SESSION}' AND ExecutionStatus != 'ContinuedAsNew'"
        if prefix:
            query += f" AND WorkflowId STARTS_WITH {quote_literal(queryable_prefix(session_workflow_id(prefix)))}"
        views: list[SessionView] = []
        executions = executions_from(self._client, query, after=after, page_size=page_size_for(limit))
        async for cursor, execution in executions:
            # A database may ignore the case of the prefix, but the prefix distinguishes owners.
            if session_name_in(execution.id).startswith(prefix):
                with suppress(ValueError):
                    views.append(await _view_of(execution))
            if len(views) == limit:
                return views, cursor
        return views, None

    async def start_turn(
        self, session_name: str, prepare: PrepareTurn, *, run_id: str | None = None, on_busy: OnBusy | None = None
    ) -> StartedRun:
        """Start a turn as soon as the session is free, and return its run.

        Args:
            prepare: prepares the turn; called again if the session has changed in the meantime.
            run_id: ID of the run and of the turn; `None` generates an ID. A second call with the same ID returns the
                run of the first call.
            on_busy: called for a turn that is running; `None` to raise `TurnRejected` instead of waiting for a
                busy session.

        Raises:
            TurnRejected: the session rejects the turn; the code `session_busy` occurs only without `on_busy`.
            RunIdInUse: a different run has this ID, or the run with this ID is not a turn of this session.
            RunIdInvalid: the ID is invalid.
            SessionNotFound: another workflow has the ID of the session.
        """
        if (
            run_id is not None
            and (existing_run := await self._existing_run(session_name, prepare, run_id=run_id)) is not None
        ):
            return existing_run
        run_id = run_id or new_run_id()
        rejections = 0
        while True:
            session = await self._free_session(session_name, run_id=run_id, on_busy=on_busy)
            if session.turn_of(run_id) is not None:
                await self._ensure_served()
                return await self._started_run(session_name, run_id)
            turn = await self._prepare(session, prepare)
            await self._ensure_served()
            try:
                await self._send(session_name, turn, run_id=run_id, version=session.version)
            except TurnRejected as rejected:
                rejections += 1
                if rejected.code not in _OUTDATED_CODES or rejections > MAX_REJECTIONS:
                    raise
                # Either another turn was accepted first and will be visible shortly, or the session is ending and a
                # new session will follow.
                await asyncio.sleep(0.1)
                continue
            await self._ensure_served()
            # Look for the run instead of the turn: the session drops a turn if its ID belongs to another run.
            return await self._started_run(session_name, run_id)

    async def _existing_run(self, session_name: str, prepare: PrepareTurn, *, run_id: str) -> StartedRun | None:
        """Return the run of a turn that was sent before; `None` if there is no run with the ID."""
        turn = await self._prepare((await self.read(session_name)).session, prepare)
        existing_run = await self._runs.find_same_run(checked_run_id(run_id), turn.start)
        if existing_run is not None:
            _check_session_of(session_name, await self._client.get_workflow_handle(run_id).describe())
            await self._ensure_served()
        return existing_run

    async def _free_session(self, session_name: str, *, run_id: str, on_busy: OnBusy | None) -> SessionRecord:
        """Return the session as soon as no turn is running, or as soon as the session has a turn with the ID `run_id`.

        Raises:
            TurnRejected: a turn is running, and `on_busy` is missing.
        """
        reported_id: str | None = None
        while True:
            session = (await self.read(session_name)).session
            running_turn = session.running_turn
            if running_turn is None or session.turn_of(run_id) is not None:
                return session
            if on_busy is None:
                raise _busy_error(session_name, running_turn.run_id)
            if running_turn.run_id != reported_id:
                reported_id = running_turn.run_id
                on_busy(running_turn)
            await asyncio.sleep(POLL_INTERVAL_S)

    async def _prepare(self, session: SessionRecord, prepare: PrepareTurn) -> PreparedTurn:
        return await prepare((await self.with_full_answers(session)).with_shortened_answers())

    async def _send(self, session_name: str, turn: PreparedTurn, *, run_id: str, version: int) -> None:
        encoded_start = turn.start
        start = TurnStart(
            run_id,
            encoded_start.content,
            turn.request,
            version,
            encoded_start.workflow,
            memo=encoded_start.memo,
            policy=turn.policy,
            task_queue=encoded_start.task_queue,
            fairness=encoded_start.fairness,
        )
        start_operation: WithStartWorkflowOperation[Any, Any] = WithStartWorkflowOperation(
            wire.WORKFLOW_SESSION,
            {"session_id": session_name},
            id=session_workflow_id(session_name),
            task_queue=self._task_queue,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            search_attributes=self._search_attributes(session_name),
            static_summary=summary_of(f"session {session_name}"),
            task_timeout=timedelta(seconds=WORKFLOW_TASK_S),
            priority=fair_priority(encoded_start.fairness),
        )
        try:
            await self._client.execute_update_with_start_workflow(
                wire.UPDATE_START_TURN,
                start.to_json(),
                id=f"{run_id}/{version}",
                start_workflow_operation=start_operation,
                rpc_timeout=timedelta(seconds=TURN_TIMEOUT_S),
            )
        except WorkflowUpdateFailedError as error:
            raise _rejection_of(error) from None
        except RPCError as error:
            if error.status not in _UPDATE_LOST_STATUSES:
                raise
            # The session ended at this moment, or continued as new. The turn may be sent again, because a session
            # starts one run for each run ID.
            raise TurnRejected("session_changed", f"the session {session_name!r} does not respond: {error}") from None
        except WorkflowUpdateRPCTimeoutOrCancelledError:
            message = (
                f"no worker serves the session {session_name!r}; when a worker serves the session, the turn starts as "
                f"the run {run_id!r}"
            )
            raise TurnRejected("no_worker", message) from None

    async def _started_run(self, session_name: str, run_id: str) -> StartedRun:
        """Return the run of an accepted turn as soon as it exists.

        Raises:
            TurnRejected: the run could not be started.
            RunIdInUse: another run has this ID.
        """
        deadline = time.monotonic() + TURN_TIMEOUT_S
        while True:
            try:
                description = await self._client.get_workflow_handle(run_id).describe()
                _check_session_of(session_name, description)
                return StartedRun(run_id, description.run_id, is_new=True)
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:
                    raise
            turn = (await self.read(session_name)).session.turn_of(run_id)
            if turn is not None and turn.ended_at is not None:
                raise TurnRejected("not_started", turn.outcome or f"the run {run_id!r} could not be started")
            if time.monotonic() > deadline:
                raise TurnRejected(
                    "no_worker", f"no worker serves the session {session_name!r}, so the run has not started"
                )
            await asyncio.sleep(0.05)

    async def wait_for_turn_end(self, session_name: str, run_id: str) -> None:
        """Wait for a limited time until the session has received the end of a run."""
        deadline = time.monotonic() + STATE_TIMEOUT_S
        while time.monotonic() < deadline:
            turn = (await self.read(session_name)).session.turn_of(run_id)
            if turn is None or turn.ended_at is not None:
                return
            await asyncio.sleep(0.1)

    async def end(self, session_name: str) -> str:
        """End a session, so that it accepts no more turns.

        Return the predicate of a sentence about the session, such as `has ended`.

        Raises:
            SessionNotFound: there is no open session with this name.
        """
        view = await self.find(session_name)
        if not view.is_open:
            raise SessionNotFound(f"the session {session_name!r} has ended already")
        try:
            await self._client.get_workflow_handle(view.workflow_id).signal(wire.SIGNAL_END_SESSION, {})
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
        deadline = time.monotonic() + STATE_TIMEOUT_S
        while time.monotonic() < deadline:
            view = await self.find(session_name)
            if not view.is_open:
                return "has ended"
            if (running_turn := view.session.running_turn) is not None and view.session.is_ending:
                return f"accepts no more requests, and ends with the run {running_turn.run_id}"
            await asyncio.sleep(0.1)
        return "ends as soon as a worker serves it"

    async def _find_view(self, session_name: str) -> SessionView | None:
        try:
            description = await self._client.get_workflow_handle(session_workflow_id(session_name)).describe()
        except RPCError as error:
            if error.status in (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT):
                return None
            raise
        if description.workflow_type != wire.WORKFLOW_SESSION:
            raise SessionNotFound(f"{session_workflow_id(session_name)!r} is a run, not a session: choose another ID")
        try:
            return await _view_of(description)
        except ValueError as error:
            raise SessionNotFound(f"the session {session_name!r} cannot be read: {error}") from None

    def _search_attributes(self, session_name: str) -> TypedSearchAttributes:
        pairs = [SearchAttributePair(STATE, "running"), SearchAttributePair(_SESSION, keyword(session_name))]
        title = SearchAttributePair(TITLE, keyword(f"session {session_name}"))
        return TypedSearchAttributes([*pairs, title] if self._has_search_attributes else [])


async def _view_of(execution: WorkflowExecution | WorkflowExecutionDescription) -> SessionView:
    """Return a session from the memo of its workflow.

    Raises:
        ValueError: the memo has no session.
    """
    session_name = session_name_in(execution.id)
    state = (await readable_memo(execution)).get(wire.MEMO_SESSION_STATE)
    session = SessionRecord(session_name) if state is None else session_from_json(state, name=session_name)
    is_open = execution.status is WorkflowExecutionStatus.RUNNING
    return SessionView(session, is_open, execution.run_id, execution.start_time.timestamp())


def _check_session_of(session_name: str, execution: WorkflowExecution) -> None:
    """Check that a run is a turn of the session.

    Raises:
        RunIdInUse: the run does not belong to the session.
    """
    if execution.parent_id != session_workflow_id(session_name):
        parent_name = session_name_in(execution.parent_id) if execution.parent_id is not None else None
        session_text = f"of the session {parent_name!r}" if parent_name is not None else "outside of sessions"
        message = (
            f"the id {execution.id!r} belongs to a run {session_text}, not to a run of the session {session_name!r}"
        )
        raise RunIdInUse(f"{message}; choose another id")


def _busy_error(session_name: str, run_id: str) -> TurnRejected:
    message = f"the session {session_name!r} is busy with the run {run_id!r}; try again when it has ended"
    return TurnRejected("session_busy", message, run_id)


def _rejection_of(error: WorkflowUpdateFailedError) -> TurnRejected:
    """Return the session's rejection of a turn."""
    cause = error.cause
    detail: Any = cause.details[0] if isinstance(cause, ApplicationError) and cause.details else None
    rejection = detail if isinstance(detail, Mapping) else {}
    return TurnRejected(
        str(rejection.get("code", "invalid")), getattr(cause, "message", str(cause)), rejection.get("run_id")
    )
