"""`RunPlan`: runs one plan. The workflow is a shell: it decodes, lets the engine run, and writes the document.

Everything that comes from outside is decoded here, inside of one process-edge `try`: an exception in workflow code
would otherwise be tried again for ever, and the run would stay RUNNING (engine-findings.md 7).

It runs outside of the SDK's sandbox: nobody's code but ours runs here, and the sandbox is entered seven times for
each payload, which costs more than all the rest of a run (benchmarks/README.md).

Replay: commands come from the scheduler's order alone. A change of that order needs a patch marker, and the saved
histories of the versions before in `tests/replay`.
"""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import count
from typing import Any, TypeVar

import pydantic_core
from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy, SearchAttributeKey
from temporalio.exceptions import ActivityError, ApplicationError, TimeoutError, TimeoutType

from dagwright.contracts import limits, wire
from dagwright.contracts.carries import CarryTooLarge, RunCarry, state_to_text
from dagwright.contracts.chunk_inputs import ChunkInput, handed_on
from dagwright.contracts.chunk_runs import begin_chunk, with_items
from dagwright.contracts.documents import (
    RunFacts,
    compact_document,
    counted_document,
    error_json,
    format_time,
    graph_document,
    node_document,
    reference_to,
    result_document,
)
from dagwright.contracts.messages import (
    CancelMessage,
    MessageInvalid,
    RunInput,
    SubPlanEnd,
    cancel_request_from_json,
    pages_of,
    read_message,
    run_input_from_json,
    run_input_to_json,
    sub_plan_end_from_json,
)
from dagwright.contracts.notes import Notes
from dagwright.contracts.outcomes import is_cancellation, is_sub_plan
from dagwright.contracts.plan_limits import PlanTooLarge
from dagwright.plan.carry import carry_of, restore, tasks_in_flight
from dagwright.plan.compiled import CompiledPlan, plan_from_json
from dagwright.plan.errors import NodeError
from dagwright.plan.inputs import wrong_inputs
from dagwright.plan.lookup_places import with_places
from dagwright.plan.references import Lookup
from dagwright.plan.scheduler import Scheduler
from dagwright.plan.states import RunStatus
from dagwright.plan.unfilled import with_shown
from workflows.calls import RunScope, json_payload
from workflows.details import render_details
from workflows.engine import Engine, now_s
from workflows.handing_on import put_state, state_of
from workflows.maps import end_of_chunk, items_of_chunk
from workflows.plan_pages import load_plan
from workflows.sub_plans import NOTHING_COMPLETED, end_of, report_end

T = TypeVar("T")

_STATE = SearchAttributeKey.for_keyword(wire.SEARCH_STATE)


class PlanRefused(Exception):
    """A run cannot begin; carries the run-level error of the document."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error["message"])
        self.error = error


@workflow.defn(name=wire.WORKFLOW_RUN_PLAN, sandboxed=False)
class RunPlanWorkflow:
    """Runs one plan to its end and returns the result document (contract.md sections 4 to 6)."""

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._status: str | None = None
        self._title: str | None = None
        self._error: dict[str, Any] | None = None
        self._notes = Notes()
        self._cancel_before_start: str | None = None
        self._is_cancelled = False
        self._signals = 0
        self._state_pieces = count(1)
        """Numbers of the pieces of the state that were put into the store, or begun to be."""
        self._early_ends: list[SubPlanEnd] = []
        self._tells_state = workflow.info().typed_search_attributes.get(_STATE) is not None
        """Whether the namespace is known to have the search attribute; a run that sets one that it lacks is stuck."""
        self._began_at = workflow.info().workflow_start_time.timestamp()
        """When the first execution of this run started; deadlines count from there."""

    @workflow.run
    async def run(self, message: RawValue) -> Any:
        """Runs the plan of the message.

        Raises:
            ApplicationError: `PlanFailed` with the document as its detail if the plan failed; `Bug` if Dagwright did.
            CancelledError: Temporal's own cancel was asked for; everything that ran has been stopped.
        """
        try:
            return await self._run(message)
        except ApplicationError:
            raise
        # The process edge: what nobody expected ends the run with its reason, instead of wedging it.
        except Exception as error:
            workflow.logger.exception("the run ended by a defect")
            raise ApplicationError(
                f"{type(error).__name__}: {error}", type=wire.ERROR_BUG, non_retryable=True
            ) from error

    async def _run(self, message: RawValue) -> Any:
        run_input: RunInput | None = None
        cancelled: asyncio.CancelledError | None = None
        try:
            run_input = run_input_from_json(read_message(message.payload))
            if run_input.carry is not None:
                self._began_at = run_input.carry.began_at
            await self._run_plan(run_input)
        except (MessageInvalid, PlanRefused) as error:
            self._error = error.error if isinstance(error, PlanRefused) else _error_of(error)
        except asyncio.CancelledError as error:
            cancelled = error
            if self._engine is not None:
                await self._engine.run_to_stop(wire.REASON_TEMPORAL_CANCEL)
        return await self._finish(run_input, cancelled)

    async def _run_plan(self, run_input: RunInput) -> None:
        plan, run_input = await self._plan_of(run_input)
        self._title = plan.title
        if problems := wrong_inputs(plan.inputs, run_input.inputs):
            # A sub-plan is given values that came out of results, which nobody could check before.
            told = [problem.to_json() for problem in problems]
            raise PlanRefused({**error_json(problems[0].code, problems[0].message), "errors": told})
        info = workflow.info()
        scope = RunScope(run_input.scope or info.first_execution_run_id, run_input.path, info.task_queue)
        deadline_s = _smallest(plan.deadline_s, run_input.deadline_s)
        lookups = await self._resolve_lookups(plan, run_input.lookups, deadline_s=deadline_s)
        chunk, inputs = run_input.chunk, run_input.inputs
        if chunk is not None and run_input.carry is None:
            inputs = with_items(inputs, await self._items_of(chunk, deadline_s=deadline_s))
        scheduler = Scheduler(plan, inputs, lookups=lookups, max_in_flight=run_input.max_in_flight)
        await self._begin(scheduler, run_input.carry, chunk, deadline_s=deadline_s)
        deadline_at = self._began_at + deadline_s if deadline_s is not None else None
        self._engine = Engine(scheduler, scope, deadline_at=deadline_at, signals=lambda: self._signals)
        if self._is_cancelled:
            self._engine.request_cancel(self._cancel_before_start)
        for end in self._early_ends:
            self._take_sub_plan_end(end)
        await self._engine.run()
        while not scheduler.is_finished:
            rest = handed_on(chunk) if chunk is not None else None
            following = replace(run_input, plan=None, compiled=plan, lookups=lookups, chunk=rest)
            await self._go_on_in_new_execution(self._engine, following)
            # Something came meanwhile that has to be taken first.
            await self._engine.run()

    async def _items_of(self, chunk: ChunkInput, *, deadline_s: float | None) -> Sequence[Any]:
        try:
            return await items_of_chunk(chunk, time_left=self._time_left(deadline_s))
        except ActivityError as error:
            raise PlanRefused(_refusal(error, "the items cannot be had")) from None
        except ValueError as error:
            raise MessageInvalid(str(error)) from None

    async def _begin(
        self, scheduler: Scheduler, carry: RunCarry | None, chunk: ChunkInput | None, *, deadline_s: float | None
    ) -> None:
        """Begins a run, or goes on where the execution before this one left it."""
        if carry is None:
            scheduler.begin(now_s())
            if chunk is not None:
                begin_chunk(scheduler, chunk, at=now_s())
            return
        try:
            restore(scheduler, await state_of(carry, time_left=self._time_left(deadline_s)))
        except ActivityError as error:
            raise PlanRefused(_refusal(error, "the run cannot go on")) from None
        except ValueError as error:
            raise MessageInvalid(str(error)) from None
        lost = [task_id for task_id in tasks_in_flight(scheduler) if not is_sub_plan(scheduler, task_id)]
        if lost:
            raise MessageInvalid(f"the execution before this one left {lost[0]!r} running, whose end nobody would hear")
        self._notes.go_on_from(carry.notes, carry.notes_left_out)

    async def _go_on_in_new_execution(self, engine: Engine, run_input: RunInput) -> None:
        """Ends this execution and starts the next one of the run, with an empty history.

        Signals that come meanwhile go to the next one; the server lets no execution end that has not seen them all.
        What comes while a large state is put into the store has to be taken first, and then this returns.
        """
        try:
            state = state_to_text(carry_of(engine.scheduler))
        except CarryTooLarge as error:
            engine.scheduler.abort(NodeError("too_large", f"the history is full, and {error}"), now_s())
            return
        encoded = self._following_input(run_input, state=state)
        if len(state) > limits.INLINE_STATE_BYTES or len(encoded) > limits.RUN_INPUT_LIMIT_BYTES:
            refs = await engine.undisturbed(put_state(state, numbers=self._state_pieces))
            if refs is None:
                return
            encoded = self._following_input(run_input, refs=refs)
        memo = {**workflow.memo(), wire.MEMO_BEGAN: format_time(self._began_at)}
        workflow.continue_as_new(RawValue(json_payload(encoded)), memo=memo)

    def _following_input(self, run_input: RunInput, *, state: str = "", refs: Sequence[str] = ()) -> bytes:
        carry = RunCarry(self._began_at, state, refs, notes=self._notes.kept, notes_left_out=self._notes.left_out)
        return pydantic_core.to_json(run_input_to_json(replace(run_input, carry=carry)))

    def _time_left(self, deadline_s: float | None) -> timedelta | None:
        """Returns what is left of a deadline that counts from the start of the run, at least a millisecond."""
        if deadline_s is None:
            return None
        return timedelta(seconds=max(self._began_at + deadline_s - now_s(), 0.001))

    async def _plan_of(self, run_input: RunInput) -> tuple[CompiledPlan, RunInput]:
        """Returns the compiled plan of the input, and the input as it would be given to a run of that plan."""
        if run_input.compiled is not None:
            return run_input.compiled, run_input
        if not run_input.pages:
            compiled = await self._compile(run_input)
            run_input = replace(run_input, plan=None, pages=pages_of(compiled))
            if not run_input.pages:
                plan = plan_from_json(compiled)
                return plan, replace(run_input, compiled=plan)
        try:
            return await load_plan(run_input.pages, time_left=self._time_left(run_input.deadline_s)), run_input
        except ActivityError as error:
            raise PlanRefused(_refusal(error, "the plan cannot be read")) from None
        except PlanTooLarge as error:
            raise PlanRefused(error_json("too_large", str(error))) from None
        except ValueError as error:
            raise PlanRefused(error_json("invalid", f"the plan cannot be read: {error}")) from None

    async def _compile(self, run_input: RunInput) -> dict[str, Any]:
        """Compiles a plan that came as it was written, outside of the workflow; returns its JSON form or its pages."""
        message = {"plan": run_input.plan, "inputs": run_input.inputs, "context": run_input.context}
        encoded = pydantic_core.to_json(message)
        if len(encoded) > limits.RUN_INPUT_LIMIT_BYTES:
            # Numbers may be longer here than they were written, and the server ends a run that sends 2 MB.
            allowed = f"at most {limits.RUN_INPUT_LIMIT_BYTES:,} can be run"
            told = f"the plan and its inputs have {len(encoded):,} bytes; {allowed}"
            raise PlanRefused(error_json("too_large", told))
        try:
            answer: dict[str, Any] = await workflow.execute_activity(
                wire.ACTIVITY_COMPILE_PLAN,
                RawValue(json_payload(encoded)),
                start_to_close_timeout=timedelta(minutes=2),
                heartbeat_timeout=timedelta(seconds=limits.OWN_HEARTBEAT_S),
                schedule_to_close_timeout=self._time_left(run_input.deadline_s),
                retry_policy=RetryPolicy(maximum_attempts=5),
                summary="reading the plan",
                result_type=dict[str, Any],
            )
        except ActivityError as error:
            details = error.__cause__.details if isinstance(error.__cause__, ApplicationError) else ()
            self._tells_state = self._tells_state or _has_state(details[1] if len(details) > 1 else None)
            raise PlanRefused(_refusal(error, "the plan cannot be read")) from None
        if not self._tells_state and _has_state(answer):
            self._tells_state = True
            workflow.upsert_search_attributes([_STATE.value_set(RunStatus.RUNNING.value)])
        compiled: dict[str, Any] = answer["compiled"]
        return compiled

    async def _resolve_lookups(
        self, plan: CompiledPlan, found_before: Mapping[Lookup, Any], *, deadline_s: float | None
    ) -> Mapping[Lookup, Any]:
        """Finds every party that the plan looks up and the run above has not found, before anything else happens."""
        missing = [lookup for lookup in plan.lookups if lookup not in found_before]
        if not missing:
            return found_before
        wanted = [{"search_text": lookup.search_text, "entity_type": lookup.entity_type} for lookup in missing]
        try:
            found = await workflow.execute_activity(
                wire.ACTIVITY_RESOLVE_LOOKUPS,
                wanted,
                start_to_close_timeout=timedelta(minutes=1),
                heartbeat_timeout=timedelta(seconds=limits.OWN_HEARTBEAT_S),
                schedule_to_close_timeout=self._time_left(deadline_s),
                retry_policy=RetryPolicy(maximum_attempts=5),
                summary=limits.summary_of(f"looking up {', '.join(item['search_text'] for item in wanted)}"),
                result_type=list[dict[str, Any]],
            )
        except ActivityError as error:
            refusal = _refusal(error, "the lookups failed")
            if problems := refusal.get("errors"):
                refusal["errors"] = with_places(problems, missing, plan)
            raise PlanRefused(refusal) from None
        return {**found_before, **{lookup: party["id"] for lookup, party in zip(missing, found, strict=True)}}

    async def _finish(self, run_input: RunInput | None, cancelled: asyncio.CancelledError | None) -> Any:
        if cancelled is not None:
            self._status = RunStatus.CANCELLED.value
        document = self._document()
        if self._tells_state:
            workflow.upsert_search_attributes([_STATE.value_set(document["status"])])
        compact = compact_document(document)
        if run_input is not None and run_input.parent is not None:
            end = end_of(document)
            if run_input.chunk is not None and self._engine is not None:
                told = await _without_interruption(end_of_chunk(self._engine.scheduler))
                end = {**end, "output": None, "stored_output": None, **told}
                # It goes into the history of the run above as well, which has hundreds of them.
                compact = counted_document(compact)
            if not await _without_interruption(report_end(run_input.parent, end)):
                # The run above takes the result instead, if it is still there, and needs the output in full.
                compact |= end
        if cancelled is not None:
            raise cancelled
        if document["status"] == RunStatus.FAILED.value:
            message = (document["error"] or {}).get("message") or NOTHING_COMPLETED
            raise ApplicationError(message, compact, type=wire.ERROR_PLAN_FAILED, non_retryable=True)
        return compact

    def _document(self) -> dict[str, Any]:
        info = workflow.info()
        facts = RunFacts(
            info.workflow_id, info.run_id, title=self._title, error=self._error, notes=self._notes.to_json()
        )
        if self._engine is None:
            waiting = None if self._error else RunStatus.RUNNING.value
            return result_document(None, facts, status=self._status or waiting)
        return result_document(self._engine.scheduler, facts, status=self._status)

    @workflow.signal(name=wire.SIGNAL_CANCEL)
    def cancel(self, message: RawValue) -> None:
        """Stops the run; an empty payload works too."""
        try:
            request = cancel_request_from_json(_decode_or_none(message))
        # The process edge: whatever a cancel says, it cancels.
        except Exception as error:
            self._note_defect(wire.SIGNAL_CANCEL, error)
            request = CancelMessage()
        reason = request.reason
        self._notes.add("cancel", _cancel_note(request.reason, request.by))
        self._is_cancelled, self._cancel_before_start = True, reason
        if self._engine is not None:
            self._engine.request_cancel(reason)

    @workflow.signal(name=wire.SIGNAL_SUB_PLAN_ENDED)
    def sub_plan_ended(self, message: RawValue) -> None:
        """Takes the report of a sub-plan."""
        try:
            end = sub_plan_end_from_json(read_message(message.payload))
        except MessageInvalid as error:
            self._notes.add("refused", f"sub_plan_ended: {error}")
            return
        # The process edge: an exception in a handler would be tried again for ever.
        except Exception as error:
            self._note_defect(wire.SIGNAL_SUB_PLAN_ENDED, error)
            return
        if self._engine is None:
            # A run that has just gone on in a new execution gets what came meanwhile before anything else.
            self._early_ends.append(end)
        else:
            self._take_sub_plan_end(end)

    def _note_defect(self, signal: str, error: Exception) -> None:
        workflow.logger.exception("a signal was refused by a defect", extra={"signal": signal})
        self._notes.add("refused", f"{signal}: {wire.ERROR_BUG}: {type(error).__name__}: {error}")

    def _take_sub_plan_end(self, end: SubPlanEnd) -> None:
        assert self._engine is not None
        if not is_sub_plan(self._engine.scheduler, end.task):
            self._notes.add("refused", f"sub_plan_ended: {end.task[:200]!r} is no sub-plan of this run")
            return
        self._engine.sub_plan_ended(end)

    @workflow.signal(dynamic=True)
    def other_signal(self, name: str, _arguments: Sequence[RawValue]) -> None:
        """Refuses a signal that no run takes."""
        self._notes.add("refused", f"{name[:200]!r} is no signal of a run")

    def count_signal(self) -> None:
        """Takes note of a signal, whatever it is: the server takes so many for one execution and no more."""
        self._signals += 1

    @workflow.query(name=wire.QUERY_STATUS)
    def status(self) -> dict[str, Any]:
        """Returns the result document as far as it is."""
        return compact_document(self._document())

    @workflow.query(name=wire.QUERY_NODE)
    def node(self, node_id: str) -> dict[str, Any] | None:
        """Returns the document of one node or item; null if there is none of that id."""
        if self._engine is None:
            return None
        scheduler = self._engine.scheduler
        record = scheduler.record_of(node_id)
        if record is None:
            return None
        document = node_document(scheduler, scheduler.node_of(node_id), record)
        return document | {"result": with_shown(document["result"], lambda part: reference_to(part, ref=node_id))}

    def details(self) -> str:
        """Returns the live table for the Temporal UI."""
        return render_details(self._engine.scheduler) if self._engine else ""

    @workflow.query(name=wire.QUERY_GRAPH)
    def graph(self) -> dict[str, Any]:
        """Returns nodes and edges with their states."""
        return graph_document(self._engine.scheduler) if self._engine else {"nodes": [], "edges": []}


def _decode_or_none(message: RawValue) -> Any:
    try:
        return read_message(message.payload)
    except MessageInvalid:
        return None


def _error_of(error: MessageInvalid) -> dict[str, Any]:
    found = error_json(error.code, str(error))
    return {**found, "errors": [problem.to_json() for problem in error.problems]} if error.problems else found


def _has_state(answer: Any) -> bool:
    return isinstance(answer, Mapping) and answer.get(wire.ANSWER_HAS_STATE) is True


def _refusal(error: ActivityError, otherwise: str) -> dict[str, Any]:
    """Returns the run-level error that the failure of a preparing activity stands for."""
    cause = error.__cause__
    if is_cancellation(error):
        raise asyncio.CancelledError from error
    if isinstance(cause, TimeoutError) and cause.type == TimeoutType.SCHEDULE_TO_CLOSE:
        return error_json("deadline_exceeded", f"{otherwise}: the run took over its deadline")
    if not isinstance(cause, ApplicationError):
        return error_json("failed", f"{otherwise}: {cause}")
    found = cause.details[0] if cause.details else None
    problems = found if isinstance(found, list) else []
    code = problems[0].get("code") if problems else None
    return {**error_json(code or cause.type or "failed", cause.message), "errors": problems}


def _cancel_note(reason: str | None, by: str | None) -> str:
    return f"cancelled{f' by {by}' if by else ''}{f': {reason}' if reason else ''}"


async def _without_interruption(work: Coroutine[Any, Any, T]) -> T:
    """Awaits something to its end, also if the run is cancelled meanwhile: it has ended already."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        return await task


def _smallest(*values: float | None) -> float | None:
    return min((value for value in values if value is not None), default=None)
