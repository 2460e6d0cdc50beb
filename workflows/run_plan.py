"""`RunPlan`, `RunAgent` and `PlanAndExecute`: run one plan. The workflow decodes the input, runs the engine, and
returns the result document.

In the runs of agents and goals, the plan grows: the extender that the plan names adds nodes
(`dagwright.features.plan_extension.extender`). The workflow types differ only in their names: lists and the Temporal
UI distinguish the runs by these names.

All data from outside is decoded here, inside of one `try`: an exception in workflow code would otherwise
be retried without end, and the run would stay RUNNING (docs/contributing/guards.md F7).

The workflow runs outside of the SDK's sandbox: the workflow contains no user code, and the sandbox is entered seven
times for each payload, which costs more than the rest of a run (benchmarks/README.md).

Replay: the Temporal commands depend only on the order in which the scheduler starts tasks. A change of this order needs
a patch marker, and saved histories of older versions in `tests/replay`.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Any

import pydantic_core
from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ActivityError, ApplicationError, TimeoutError, TimeoutType

from dagwright.core.boundary import limits, wire
from dagwright.core.compiler.node_columns import plan_from_columns
from dagwright.core.model.compiled import CompiledNode, CompiledPlan
from dagwright.core.model.states import NodeError, RunStatus
from dagwright.core.model.times import format_time
from dagwright.core.validation.inputs import problems_of_inputs
from dagwright.features.commands.steering import current_notes
from dagwright.features.run_scheduler import RunScheduler
from dagwright.protocol.budgets import BudgetMessage, read_budget_message
from dagwright.protocol.commands import accept_sub_plan_report, note_unknown_signal, read_sub_plan_report
from dagwright.protocol.compact_documents import closing_document, compact_document, map_batch_document
from dagwright.protocol.documents import (
    RunFacts,
    error_json,
    listed_requests,
    result_document,
    result_document_with_counts,
)
from dagwright.protocol.failures import NOTHING_COMPLETED_MESSAGE
from dagwright.protocol.map_batch_messages import MapBatchInput, next_map_batch_input
from dagwright.protocol.map_batch_runs import start_map_batch, with_items
from dagwright.protocol.messages import MessageInvalid, Parent, SubPlanEnd, read_message
from dagwright.protocol.node_paths import is_sub_plan
from dagwright.protocol.notes import Notes
from dagwright.protocol.outcomes import is_cancellation
from dagwright.protocol.plan_limits import PlanTooLarge
from dagwright.protocol.query_results import graph_result, node_result, status_result
from dagwright.protocol.run_input import RunInput, page_refs_from_json, run_input_from_json, run_input_to_json
from dagwright.protocol.run_snapshot import RunSnapshot, SnapshotTooLarge, state_to_text
from dagwright.protocol.run_start import (
    changed_deadline,
    deadline_of,
    is_model_written,
    scheduler_for_run,
    start_restored_run,
    start_run,
)
from dagwright.protocol.scheduler_snapshot import restore_state, state_to_json, tasks_in_flight
from dagwright.protocol.turns import end_of_turn
from dagwright.workflows.activity_calls import INTERNAL_ATTEMPT_TIMEOUT, RunContext, json_payload, memo_of_run
from dagwright.workflows.blobs import TextRejected
from dagwright.workflows.command_messages import CommandMessageHandler
from dagwright.workflows.details import render_details
from dagwright.workflows.ending import ENDS_CANCELED, await_to_end, end_as_canceled
from dagwright.workflows.engine import Engine
from dagwright.workflows.maps import load_map_batch_items, store_map_batch_results
from dagwright.workflows.plan_pages import load_plan
from dagwright.workflows.retries import FIVE_ATTEMPTS
from dagwright.workflows.search_attributes import SearchAttributes
from dagwright.workflows.state_transfer import create_compensation_snapshot, load_state, put_state
from dagwright.workflows.steerable import Steerable
from dagwright.workflows.sub_plans import end_of, report_end, report_turn
from dagwright.workflows.timers import now_s


class PlanRejected(Exception):
    """The run cannot start. `error` is the error in its result document."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error["message"])
        self.error = error


class PlanWorkflow(Steerable):
    """Run one plan to its end and return the result document.

    The subclasses are the workflow types of runs.
    """

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._status: str | None = None
        self._title: str | None = None
        self._error: dict[str, Any] | None = None
        self._notes = Notes()
        self._signal_count = 0
        self._piece_numbers = count(1)
        """Numbers for the stored pieces of the state. An aborted attempt to store the state uses up its numbers."""
        self._early_ends: list[SubPlanEnd] = []
        """Reports of sub-plans that arrived before the plan was known."""
        self._early_budget_messages: list[BudgetMessage] = []
        """Budget messages that arrived before the plan was known."""
        super().__init__(CommandMessageHandler(self._notes))
        self._attributes = SearchAttributes()
        self._started_at = workflow.info().workflow_start_time.timestamp()
        """Start of the first execution of this run. Deadlines count from this time."""

    async def run_to_end(self, message: RawValue) -> Any:
        """Run the plan of the message.

        Raises:
            ApplicationError: `PlanFailed` if the plan failed, with the document as its detail; `InternalError` for an
                error in Dagwright.
            CancelledError: the run was cancelled through Temporal; all running tasks have been stopped.
        """
        try:
            return await self._run(message)
        except ApplicationError:
            raise
        # Catch all exceptions: an unexpected exception ends the run with its reason, instead of blocking it.
        except Exception as error:
            workflow.logger.exception("the run ended because of a bug")
            raise ApplicationError(
                f"{type(error).__name__}: {error}", type=wire.ERROR_INTERNAL, non_retryable=True
            ) from error

    async def _run(self, message: RawValue) -> Any:
        run_input: RunInput | None = None
        cancellation: asyncio.CancelledError | None = None
        try:
            run_input = run_input_from_json(read_message(message.payload))
            if run_input.snapshot is not None and run_input.snapshot.origin is None:
                self._started_at = run_input.snapshot.started_at
            await self._run_plan(run_input)
        except (MessageInvalid, PlanRejected) as error:
            self._error = error.error if isinstance(error, PlanRejected) else _error_of(error)
        except asyncio.CancelledError as error:
            cancellation = error
            if self._engine is not None:
                await self._engine.stop_after_cancellation(wire.REASON_TEMPORAL_CANCEL)
        return await self._finish(run_input, cancellation)

    async def _run_plan(self, run_input: RunInput) -> None:
        plan, run_input = await self._load_or_compile_plan(run_input)
        self._title = plan.title
        if problems := problems_of_inputs(plan.inputs, run_input.inputs):
            # The inputs of a sub-plan may be results, which could not be checked before.
            entries = [problem.to_json() for problem in problems]
            raise PlanRejected({**error_json(problems[0].code, problems[0].text), "errors": entries})
        info = workflow.info()
        context = RunContext(
            run_input.scope or info.first_execution_run_id,
            run_input.path,
            info.task_queue,
            run_input.notifies,
            model=(plan.extender or {}).get("config") or run_input.model,
            parent=run_input.parent,
            execution_id=info.run_id,
        )
        deadline_s = deadline_of(plan, run_input)
        map_batch, inputs = run_input.map_batch, run_input.inputs
        if map_batch is not None and run_input.snapshot is None:
            inputs = with_items(inputs, await self._items_of(map_batch, plan.nodes[-1], deadline_s=deadline_s))
        scheduler = scheduler_for_run(plan, run_input, started_at=self._started_at, inputs=inputs)
        scheduler.set_options(replace(scheduler.state.options, key_of=context.key_of))
        await self._start(scheduler, run_input, deadline_s=deadline_s)
        self._engine = Engine(
            scheduler,
            context,
            signal_count=lambda: self._signal_count,
            attributes=self._attributes,
            add_note=self._notes.add,
        )
        for end in self._early_ends:
            if accept_sub_plan_report(end, scheduler, self._notes):
                self._engine.receive_sub_plan_end(end)
        for message in self._early_budget_messages:
            self._engine.receive_budget_message(message)
        self.message_handler.start(self._engine)
        await self._engine.run()
        while not scheduler.is_finished:
            next_batch = next_map_batch_input(map_batch) if map_batch is not None else None
            next_input = replace(run_input, plan=None, compiled=plan, map_batch=next_batch)
            await self._continue_as_new(self._engine, next_input)
            await self._engine.run()

    async def _items_of(
        self, map_batch: MapBatchInput, node: CompiledNode, *, deadline_s: float | None
    ) -> Sequence[Any]:
        try:
            return await load_map_batch_items(map_batch, node, time_left=self._remaining_time(deadline_s))
        except ActivityError as error:
            raise PlanRejected(_rejection(error, "the items cannot be loaded")) from None
        except ValueError as error:
            raise MessageInvalid(str(error)) from None

    async def _start(self, scheduler: RunScheduler, run_input: RunInput, *, deadline_s: float | None) -> None:
        """Start a run, or restore the state of the previous execution."""
        snapshot = run_input.snapshot
        if snapshot is None:
            start_run(scheduler, run_input, at=now_s())
            self._notes.prepend(run_input.notes, 0)
            if run_input.map_batch is not None:
                start_map_batch(scheduler, run_input.map_batch, at=now_s())
            return
        try:
            restore_state(scheduler, await load_state(snapshot, time_left=self._remaining_time(deadline_s)))
            start_restored_run(scheduler, run_input, at=now_s())
        except ActivityError as error:
            raise PlanRejected(_rejection(error, "the run cannot continue")) from None
        except ValueError as error:
            raise MessageInvalid(str(error)) from None
        lost_tasks = [task_id for task_id in tasks_in_flight(scheduler) if not is_sub_plan(scheduler, task_id)]
        if lost_tasks:
            raise MessageInvalid(f"the previous execution left {lost_tasks[0]!r} running, and its end would be lost")
        self._notes.prepend(snapshot.notes, snapshot.omitted_notes)

    async def _continue_as_new(self, engine: Engine, run_input: RunInput) -> None:
        """End this execution and start the next one of the run, with an empty history.

        Signals that arrive meanwhile go to the next execution: the server does not end an execution that has not
        received all of its signals.

        If events arrive while a large state is stored, the method returns, so that this execution applies them first.
        If the state cannot be stored, the method also returns, and the run ends in this execution.
        """
        try:
            state = state_to_text(state_to_json(engine.scheduler))
        except SnapshotTooLarge as error:
            engine.end_in_this_execution(NodeError("too_large", f"the history is full, and {error}"))
            return
        encoded = self._next_input(run_input, state=state)
        if len(state) > limits.MAX_INLINE_STATE_BYTES or len(encoded) > limits.RUN_INPUT_LIMIT_BYTES:
            try:
                refs = await engine.run_while_idle(put_state(state, numbers=self._piece_numbers))
            except TextRejected as error:
                message = (
                    f"the history is full, and the payload store permanently rejected the state of the run: {error}"
                )
                engine.end_in_this_execution(NodeError(wire.ERROR_STORE_REJECTED, message))
                return
            if refs is None:
                return
            encoded = self._next_input(run_input, refs=refs)
        memo = {**workflow.memo(), wire.MEMO_STARTED_AT: format_time(self._started_at)}
        workflow.continue_as_new(RawValue(json_payload(encoded)), memo=memo)

    def _next_input(self, run_input: RunInput, *, state: str = "", refs: Sequence[str] = ()) -> bytes:
        assert self._engine is not None
        snapshot = RunSnapshot(
            self._started_at,
            state,
            refs,
            notes=self._notes.entries,
            omitted_notes=self._notes.omitted_count,
            deadline_s=changed_deadline(self._engine.scheduler, run_input),
        )
        return pydantic_core.to_json(run_input_to_json(replace(run_input, snapshot=snapshot, notes=())))

    def _remaining_time(self, deadline_s: float | None) -> timedelta | None:
        """Return the time until a deadline that counts from the start of the run, at least a millisecond."""
        if deadline_s is None:
            return None
        return timedelta(seconds=max(self._started_at + deadline_s - now_s(), 0.001))

    async def _load_or_compile_plan(self, run_input: RunInput) -> tuple[CompiledPlan, RunInput]:
        """Return the compiled plan of the input, and the input with this plan."""
        if run_input.compiled is not None:
            return run_input.compiled, run_input
        if not run_input.pages:
            compile_result = await self._compile(run_input)
            compiled_plan: dict[str, Any] = compile_result["compiled"]
            notifies = run_input.notifies or compile_result.get(wire.RESULT_HAS_WEBHOOK) is True
            run_input = replace(run_input, plan=None, pages=page_refs_from_json(compiled_plan), notifies=notifies)
            if not run_input.pages:
                plan = plan_from_columns(compiled_plan)
                return plan, replace(run_input, compiled=plan)
        try:
            return await load_plan(
                run_input.pages, time_left=self._remaining_time(deadline_of(None, run_input))
            ), run_input
        except ActivityError as error:
            raise PlanRejected(_rejection(error, "the plan cannot be loaded")) from None
        except PlanTooLarge as error:
            raise PlanRejected(error_json("too_large", str(error))) from None
        except ValueError as error:
            raise PlanRejected(error_json("invalid", f"the plan cannot be loaded: {error}")) from None

    async def _compile(self, run_input: RunInput) -> dict[str, Any]:
        """Compile the plan document in an activity, and return the result of `compile_plan`."""
        message = {"plan": run_input.plan, "inputs": run_input.inputs, "context": run_input.context}
        if run_input.dialect is not None:
            message["dialect"] = run_input.dialect
        if run_input.policy is not None:
            message["policy"] = run_input.policy.to_json()
        elif is_model_written(run_input):
            message["written_by_model"] = True
        encoded = pydantic_core.to_json(message)
        if len(encoded) > limits.RUN_INPUT_LIMIT_BYTES:
            # Numbers may be longer in the message than in the document, so the message may be larger. The server ends a
            # run that sends 2 MB.
            limit_text = f"at most {limits.RUN_INPUT_LIMIT_BYTES:,} can be run"
            text = f"the plan and its inputs have {len(encoded):,} bytes; {limit_text}"
            raise PlanRejected(error_json("too_large", text))
        try:
            compile_result: dict[str, Any] = await workflow.execute_activity(
                wire.ACTIVITY_COMPILE_PLAN,
                RawValue(json_payload(encoded)),
                start_to_close_timeout=INTERNAL_ATTEMPT_TIMEOUT,
                heartbeat_timeout=timedelta(seconds=limits.LARGE_HEARTBEAT_S),
                schedule_to_close_timeout=self._remaining_time(run_input.deadline_s),
                retry_policy=FIVE_ATTEMPTS,
                summary="reading the plan",
                result_type=dict[str, Any],
            )
        except ActivityError as error:
            details = error.__cause__.details if isinstance(error.__cause__, ApplicationError) else ()
            self._mark_attributes_as_defined(details[1] if len(details) > 1 else None)
            raise PlanRejected(_rejection(error, "the plan cannot be loaded")) from None
        self._mark_attributes_as_defined(compile_result)
        return compile_result

    def _mark_attributes_as_defined(self, compile_result: Any) -> None:
        if isinstance(compile_result, Mapping) and compile_result.get(wire.RESULT_HAS_SEARCH_ATTRIBUTES) is True:
            self._attributes.mark_as_defined(memo_of_run())

    async def _finish(self, run_input: RunInput | None, cancellation: asyncio.CancelledError | None) -> Any:
        self.message_handler.reject_further_commands()
        if cancellation is not None:
            self._status = RunStatus.CANCELLED.value
        if self._engine is not None:
            await await_to_end(self._engine.finish_notifications())
        # Readers of the history know the nodes from earlier events, except in these two cases.
        includes_nodes = _has_foreign_parent(run_input) or (self._engine is not None and self._engine.is_last_execution)
        document = self._document() if includes_nodes else self._counted_document()
        self._attributes.publish_end(document, self._engine.scheduler if self._engine is not None else None)
        run_result = self._compact(document) if includes_nodes else closing_document(document)
        must_return = False
        if run_input is not None and run_input.parent is not None:
            run_result, has_undelivered_data = await self._report_to_parent(
                run_input, run_input.parent, document, run_result
            )
            must_return = has_undelivered_data and cancellation is None
        if run_input is not None and run_input.session is not None:
            scheduler = self._engine.scheduler if self._engine is not None else None
            await await_to_end(report_turn(run_input.session, end_of_turn(document, scheduler)))
        is_cancelled = document["status"] == RunStatus.CANCELLED.value
        if is_cancelled and not must_return and workflow.patched(ENDS_CANCELED):
            reason = None if cancellation is not None else self._reason_of_cancel()
            if await end_as_canceled(run_result, reason=reason):
                raise cancellation or asyncio.CancelledError
        if cancellation is not None:
            raise cancellation
        if document["status"] == RunStatus.FAILED.value:
            message = (document["error"] or {}).get("message") or NOTHING_COMPLETED_MESSAGE
            raise ApplicationError(message, run_result, type=wire.ERROR_PLAN_FAILED, non_retryable=True)
        return run_result

    async def _report_to_parent(
        self, run_input: RunInput, parent: Parent, document: dict[str, Any], run_result: dict[str, Any]
    ) -> tuple[dict[str, Any], bool]:
        """Report the end of the run to its parent run.

        Args:
            run_result: result document of the run, without large parts.

        Returns:
            The result of the run, and whether this result has data for the parent run that no report has delivered.
        """
        end = end_of(document)
        scheduler = self._engine.scheduler if self._engine is not None else None
        if scheduler is not None and scheduler.state.options.compensate:
            snapshot = create_compensation_snapshot(scheduler, numbers=self._piece_numbers)
            end["child_snapshot"] = await await_to_end(snapshot)
        if run_input.map_batch is not None and scheduler is not None and not run_input.only_compensates:
            batch_end = await await_to_end(store_map_batch_results(scheduler))
            end = {**end, "output": None, "stored_output": None, **batch_end}
            run_result = closing_document(map_batch_document(document))
        if await await_to_end(report_end(parent, end)):
            return run_result, False
        # The parent run did not receive the report. If the parent run still exists, it reads the full output, and the
        # data to compensate or to join the items of a map, from the result.
        return {**run_result, **end}, not end.keys().isdisjoint({"child_snapshot", "map_batch"})

    def _reason_of_cancel(self) -> str:
        """Return the reason of the command that cancelled the run, for the history of the run."""
        notes = [note["message"] for note in self._notes.to_json() if note["code"] == wire.CANCEL]
        return notes[0] if notes else "cancelled"

    def _document(self) -> dict[str, Any]:
        """Return the result document, with counts in place of the nodes of a large run."""
        if self._engine is None:
            default_status = None if self._error else RunStatus.RUNNING.value
            return result_document(None, self._facts(), status=self._status or default_status)
        if self._visible_node_count() > limits.MAX_DOCUMENT_NODES:
            return self._counted_document()
        return result_document(self._engine.scheduler, self._facts(), status=self._status)

    def _counted_document(self) -> dict[str, Any]:
        """Return the result document with counts in place of the nodes."""
        if self._engine is None:
            return self._document()
        return result_document_with_counts(self._engine.scheduler, self._facts(), status=self._status)

    def _facts(self) -> RunFacts:
        info = workflow.info()
        notes = [*self._notes.to_json(), *current_notes(self._engine.scheduler if self._engine else None)]
        return RunFacts(info.workflow_id, info.run_id, title=self._title, error=self._error, notes=notes)

    def _compact(self, document: Mapping[str, Any]) -> dict[str, Any]:
        return compact_document(document, node_count=self._visible_node_count())

    def _visible_node_count(self) -> int:
        return self._engine.scheduler.plan.visible_count if self._engine is not None else 0

    @workflow.query(name=wire.QUERY_PENDING)
    def pending_feedback(self) -> Sequence[dict[str, Any]]:
        """Return the open requests."""
        return listed_requests(self._engine.scheduler, workflow.info().workflow_id) if self._engine else []

    @workflow.signal(name=wire.SIGNAL_SUB_PLAN_ENDED)
    def sub_plan_ended(self, message: RawValue) -> None:
        """Handle the report of a sub-plan."""
        end = read_sub_plan_report(partial(read_message, message.payload), self._notes)
        if end is None:
            return
        if self._engine is None:
            # A signal can arrive before the plan is known.
            self._early_ends.append(end)
        elif accept_sub_plan_report(end, self._engine.scheduler, self._notes):
            self._engine.receive_sub_plan_end(end)

    @workflow.signal(name=wire.SIGNAL_BUDGET_REPORT)
    def budget_report(self, message: RawValue) -> None:
        """Handle the budget report of a sub-plan."""
        self._handle_budget_message(wire.SIGNAL_BUDGET_REPORT, message)

    @workflow.signal(name=wire.SIGNAL_BUDGET_GRANT)
    def budget_grant(self, message: RawValue) -> None:
        """Handle the budget grant of the parent run."""
        self._handle_budget_message(wire.SIGNAL_BUDGET_GRANT, message)

    def _handle_budget_message(self, name: str, message: RawValue) -> None:
        budget_message = read_budget_message(name, partial(read_message, message.payload), self._notes)
        if budget_message is not None and self._engine is None:
            self._early_budget_messages.append(budget_message)
        elif budget_message is not None and self._engine is not None:
            self._engine.receive_budget_message(budget_message)

    @workflow.signal(dynamic=True)
    def handle_unknown_signal(self, name: str, _arguments: Sequence[RawValue]) -> None:
        """Add a note about an unknown signal."""
        note_unknown_signal(name, self._notes)

    def count_signal(self) -> None:
        """Count a signal or update of any kind: the server limits them for one execution."""
        self._signal_count += 1

    @workflow.query(name=wire.QUERY_STATUS)
    def status(self) -> dict[str, Any]:
        """Return the current result document."""
        return status_result(self._compact(self._document()))

    @workflow.query(name=wire.QUERY_NODE)
    def node(self, node_id: str) -> dict[str, Any] | None:
        """Return the document of one node or item; null if there is no such node."""
        return node_result(self._engine.scheduler, node_id) if self._engine else None

    def details(self) -> str:
        """Return the live table for the Temporal UI."""
        return render_details(self._engine.scheduler) if self._engine else ""

    @workflow.query(name=wire.QUERY_GRAPH)
    def graph(self) -> dict[str, Any]:
        """Return nodes and edges with their states."""
        return graph_result(self._engine.scheduler) if self._engine else {"nodes": [], "edges": []}


@workflow.defn(name=wire.WORKFLOW_RUN_PLAN, sandboxed=False)
class RunPlanWorkflow(PlanWorkflow):
    """Run of a plan."""

    @workflow.run
    async def run(self, message: RawValue) -> Any:
        """Run the plan of the message."""
        return await self.run_to_end(message)


def _has_foreign_parent(run_input: RunInput | None) -> bool:
    """Return whether a foreign workflow started the run. The result for such a workflow has the nodes."""
    has_dagwright_parent = run_input is not None and (run_input.parent is not None or run_input.session is not None)
    return workflow.info().parent is not None and not has_dagwright_parent


def _error_of(error: MessageInvalid) -> dict[str, Any]:
    error_document = error_json(error.code, str(error))
    return (
        {**error_document, "errors": [problem.to_json() for problem in error.problems]}
        if error.problems
        else error_document
    )


def _rejection(error: ActivityError, prefix: str) -> dict[str, Any]:
    """Return the error of the run for the failure of an activity that prepares the run."""
    cause = error.__cause__
    if is_cancellation(error):
        raise asyncio.CancelledError from error
    if isinstance(cause, TimeoutError) and cause.type == TimeoutType.SCHEDULE_TO_CLOSE:
        return error_json("deadline_exceeded", f"{prefix}: the run exceeded its deadline")
    if not isinstance(cause, ApplicationError):
        return error_json("failed", f"{prefix}: {cause}")
    first_detail = cause.details[0] if cause.details else None
    problems = first_detail if isinstance(first_detail, list) else []
    code = problems[0].get("code") if problems else None
    return {**error_json(code or cause.type or "failed", cause.message), "errors": problems}


@workflow.defn(name=wire.WORKFLOW_RUN_AGENT, sandboxed=False)
class RunAgentWorkflow(PlanWorkflow):
    """Run of an agent: its plan is extended by the tool calls that its model requests."""

    @workflow.run
    async def run(self, message: RawValue) -> Any:
        """Run the plan of the message."""
        return await self.run_to_end(message)


@workflow.defn(name=wire.WORKFLOW_PLAN_AND_EXECUTE, sandboxed=False)
class PlanAndExecuteWorkflow(PlanWorkflow):
    """Run of a goal: its plan is extended by the plans that a model writes."""

    @workflow.run
    async def run(self, message: RawValue) -> Any:
        """Run the plan of the message."""
        return await self.run_to_end(message)


RUN_WORKFLOWS: Sequence[type[PlanWorkflow]] = (RunPlanWorkflow, RunAgentWorkflow, PlanAndExecuteWorkflow)
"""All kinds of runs; a worker serves each of them."""
