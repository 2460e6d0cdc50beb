"""The public handle of a session: runs in sequence, each with the results of earlier runs."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Protocol, Unpack

from dagwright.client.options import PlanOptions, RequestOptions
from dagwright.client.plan_starts import PlanSource
from dagwright.client.run import Run
from dagwright.client.server_errors import reports_server_errors
from dagwright.client.services import Services
from dagwright.client.sessions import SessionView
from dagwright.core.boundary.arguments import checks_methods
from dagwright.protocol.sessions import Turn
from dagwright.toolset.program_tools import ToolSource


class SessionClient(Protocol):
    """The client of a session."""

    @property
    def _services(self) -> Services:
        """The services of the connection."""
        ...

    @property
    def start(self) -> Callable[..., Coroutine[Any, Any, Run]]:
        """Start a run of a plan."""
        ...

    @property
    def ask(self) -> Callable[..., Coroutine[Any, Any, Run]]:
        """Start a run of a request in natural language."""
        ...


@dataclass(frozen=True, slots=True)
class SessionTurn:
    """One request in a session.

    Args:
        number: 1 for the first turn of the session.
        status: `running`, or how the run ended.
        outcome: outcome of the run, on one line.
        answer: the full answer; `None` if the run has no answer.
        names: names that the run has assigned to entities.
    """

    number: int
    run_id: str
    request: str
    status: str
    outcome: str | None = None
    answer: str | None = None
    names: Sequence[str] = ()
    started_at: datetime | None = None
    ended_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class SessionState:
    """A session at one moment.

    Args:
        status: `idle`, `running`, `ending` or `ended`.
        turns: the newest turns, oldest first.
        omitted_turns: number of older turns that the session no longer has.
        context: name without `@` -> entity.
        cursor: where `list_sessions(after=cursor)` continues; set only for the last session of a page.
    """

    session_id: str
    status: str
    turns: Sequence[SessionTurn] = ()
    omitted_turns: int = 0
    context: Mapping[str, Any] = field(default_factory=dict)
    cursor: str | None = None


@checks_methods
@reports_server_errors
class Session:
    """Handle of a session. The first turn creates the session."""

    def __init__(self, client: SessionClient, session_id: str) -> None:
        self._client = client
        self._id = session_id

    @property
    def _address(self) -> str:
        return self._client._services.connection.server.address

    @property
    def id(self) -> str:
        """ID of the session: the name that the user chose."""
        return self._id

    def __repr__(self) -> str:
        return f"Session({self._id!r})"

    async def ask(
        self,
        request: str,
        *,
        run_id: str | None = None,
        tools: Sequence[ToolSource] = (),
        **options: Unpack[RequestOptions],
    ) -> Run:
        """Start a run of a request in natural language as the next turn, as soon as the session is idle.

        Args:
            run_id: as in `Client.ask`.
            tools: as in `Client.ask`.
            **options: as in `Client.ask`.

        Raises:
            TurnRejected: the session accepts no more turns, or no worker serves it.
            GoalRejected: the request cannot be planned.
        """
        return await self._client.ask(request, run_id=run_id, tools=tools, session_id=self._id, **options)

    async def start(
        self,
        plan: PlanSource,
        *,
        inputs: Mapping[str, Any] | None = None,
        run_id: str | None = None,
        tools: Sequence[ToolSource] = (),
        **options: Unpack[PlanOptions],
    ) -> Run:
        """Start a run of a plan as the next turn, as soon as the session is idle.

        Args:
            plan: as in `Client.start`.
            inputs: as in `Client.start`.
            run_id: as in `Client.start`.
            tools: as in `Client.start`.
            **options: as in `Client.start`.

        Raises:
            TurnRejected: the session accepts no more turns, or no worker serves it.
            PlanInvalid: the plan is invalid.
        """
        return await self._client.start(plan, inputs=inputs, run_id=run_id, tools=tools, session_id=self._id, **options)

    async def state(self) -> SessionState:
        """Return the current state of the session.

        Raises:
            SessionNotFound: the session does not exist yet.
        """
        sessions = self._client._services.sessions
        view = await sessions.find(self._id)
        return state_of(replace(view, session=await sessions.with_full_answers(view.session)))

    async def turns(self) -> Sequence[SessionTurn]:
        """Return the newest turns, oldest first. Raises the same errors as `state`."""
        return (await self.state()).turns

    async def end(self) -> str:
        """End the session after its current run, and accept no more turns.

        Return the predicate of a sentence about the session, such as `has ended`.

        Raises:
            SessionNotFound: there is no open session.
        """
        return await self._client._services.sessions.end(self._id)


def state_of(view: SessionView) -> SessionState:
    """Return the public form of a session."""
    session = view.session
    return SessionState(
        session_id=session.name,
        status=session.status if view.is_open else "ended",
        turns=tuple(map(_turn_of, session.turns)),
        omitted_turns=session.omitted_turns,
        context=dict(session.names),
    )


def _turn_of(turn: Turn) -> SessionTurn:
    return SessionTurn(
        number=turn.number,
        run_id=turn.run_id,
        request=turn.request,
        status=turn.status,
        outcome=turn.outcome,
        answer=turn.answer,
        names=tuple(turn.names),
        started_at=None if turn.started_at is None else datetime.fromisoformat(turn.started_at),
        ended_at=None if turn.ended_at is None else datetime.fromisoformat(turn.ended_at),
    )
