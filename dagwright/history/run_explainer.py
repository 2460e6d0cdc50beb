"""Explanation of the state of a run or node from the histories of the run and its sub-plans, without a worker."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from dagwright.core.boundary.wire import ERROR_PLAN_FAILED
from dagwright.core.model.lookups import resolved_lookups
from dagwright.core.model.requests import BUDGET_TASK, Request
from dagwright.core.model.states import NodeStatus
from dagwright.core.model.times import format_time
from dagwright.features.explain.reasons import Reason, ReasonKind, reason_of
from dagwright.features.explain.why import MAX_REASONS, Chain, blocking_chain, sentence, why
from dagwright.history.executions import NodeNotFound, RunNotFound
from dagwright.history.map_items import ItemNotStarted, OpenReader, view_of_item
from dagwright.history.node_paths import SubPlanNotStarted, child_run_id, resolve_path
from dagwright.history.offloaded_regions import InnerNode, OffloadedNodes, unreadable_note
from dagwright.protocol.failures import DERIVED_ERROR_CODES
from dagwright.store import PayloadStore, StoreError

if TYPE_CHECKING:
    from dagwright.features.run_scheduler import RunScheduler
    from dagwright.history.run_view import RunView

MAX_RUNS_READ = 30
"""Maximum number of child runs (sub-plans and map batches) whose histories one `RunExplainer` reads."""
_MAX_SENTENCES = 3
_KIND_OF_STATUS: dict[NodeStatus, ReasonKind] = {
    NodeStatus.COMPLETED: "completed",
    NodeStatus.FAILED: "failed",
    NodeStatus.BLOCKED: "blocked",
    NodeStatus.SKIPPED: "skipped",
    NodeStatus.CANCELLED: "cancelled",
}


@dataclass(frozen=True, slots=True)
class RunExplanation:
    """Reasons for the state of a run or one of its nodes.

    Args:
        view: the run.
        node_id: node or item, with the path to its sub-plan; empty for the whole run.
        chain: the reasons; the name of a node in a sub-plan starts with the path to the sub-plan.
        notes: notes about the run or about nodes of the chain.
    """

    view: "RunView"
    node_id: str
    chain: Chain
    notes: Sequence[dict[str, Any]] = ()

    def describe(self, time_formatter: Callable[[float], str]) -> str:
        """Return the explanation as text.

        Args:
            time_formatter: function that formats a time.
        """
        starts = [*self.start_reasons()]
        sentences = [sentence(self.chain, start, time_formatter=time_formatter) for start in starts[:_MAX_SENTENCES]]
        if (omitted_count := len(starts) + self.chain.omitted - len(sentences)) > 0 and not self.node_id:
            sentences.append(f"and {omitted_count:,} more")
        if (error_text := self.unexplained_error()) is not None:
            sentences.append(f"the run ended with the error {error_text}")
        if not sentences:
            error = self._error()
            sentences = [str(error["message"])] if error else [self._message_without_reasons()]
        return "; ".join(sentences)

    def unexplained_error(self) -> str | None:
        """Return code and message of the error of a run, if no reason contains the message."""
        error = self._error() if self.view.is_closed and not self.node_id and self.chain.reasons else None
        if error is None or error["code"] in {ERROR_PLAN_FAILED, *DERIVED_ERROR_CODES}:
            # The reasons of the nodes already explain this error.
            return None
        if any(str(error["message"]) in reason.detail for reason in self.chain.reasons):
            return None
        return f"{error['code']}: {error['message']}"

    def start_reasons(self) -> Iterator[Reason]:
        """Yield the reasons that no other reason refers to."""
        yield from self.chain.reasons[:1] if self.node_id else self.chain.start_reasons()

    def to_json(self) -> dict[str, Any]:
        """Return the document of `explain --json`."""
        return {
            "run_id": self.view.run_id,
            "execution_id": self.view.execution_id,
            "status": self.view.status,
            "node_id": self.node_id or None,
            "message": self.describe(format_time),
            "chain": [reason.to_json() for reason in self.chain.reasons],
            "omitted": self.chain.omitted,
            "error": self._error(),
            "notes": list(self.notes),
        }

    def _error(self) -> dict[str, Any] | None:
        error: dict[str, Any] | None = self.view.document_with_refs()["error"]
        return error

    def _message_without_reasons(self) -> str:
        if self.view.is_closed:
            return f"the run {self.view.run_id} {self.view.status.replace('_', ' ')}"
        if self.requests_outside_chain():
            return "; ".join(
                f"{request.id} {request.waiting_reason.partition(chr(10))[0]}"
                for request in self.requests_outside_chain()
            )
        scheduler = self.view.scheduler
        nodes = zip(scheduler.plan.nodes, scheduler.records, strict=True) if scheduler is not None else ()
        running_lookups = [
            str(node.title) for node, record in nodes if node.kind == "lookup" and record.status is NodeStatus.RUNNING
        ]
        if running_lookups:
            return f"the run {self.view.run_id} is {'; '.join(running_lookups[:_MAX_SENTENCES])}"
        return f"no step of the run {self.view.run_id} has started"

    def resolved_lookups_of_run(self) -> Sequence[dict[str, Any]]:
        """Return the resolved lookups of the run; empty if the explanation is about one node."""
        scheduler = self.view.scheduler
        return (
            [*resolved_lookups(scheduler.plan, scheduler.records)] if scheduler is not None and not self.node_id else ()
        )

    def requests_outside_chain(self) -> Sequence[Request]:
        """Return the open requests that belong to no shown node: for inputs, for approval of the plan, for lookups."""
        scheduler = self.view.scheduler
        if scheduler is None or self.node_id:
            return ()
        explained_nodes = {reason.node_id for reason in self.chain.reasons}
        return [
            request
            for request in scheduler.features.feedback.requests.open.values()
            if request.task not in explained_nodes and _has_no_visible_node(scheduler, request)
        ]


def _has_no_visible_node(scheduler: "RunScheduler", request: Request) -> bool:
    """Return whether a request belongs to no node, or to a lookup, which is never shown."""
    return request.task in ("", BUDGET_TASK) or scheduler.state.node_of(request.task).kind == "lookup"


class RunExplainer:
    """Explainer of runs and nodes. All its explanations together read at most `MAX_RUNS_READ` child runs.

    Args:
        open_reader: function that opens the reader of a run.
        store: payload store with the nodes of offloaded regions.
    """

    def __init__(self, open_reader: OpenReader, store: PayloadStore) -> None:
        self._open_reader = open_reader
        self._store = store
        self._runs_left = MAX_RUNS_READ

    async def explain_run(self, run_id: str) -> RunExplanation:
        """Return why a run is in its state, or why it ended.

        Raises:
            RunNotFound: there is no such run.
        """
        view = await self._open_reader(run_id).read()
        return RunExplanation(view, "", await self._chain_of_run(view), notes=view.notes)

    async def explain_node(self, run_id: str, node: str) -> RunExplanation:
        """Return why a node or item is in its state.

        Args:
            node: ID of the node or item; for a node of a sub-plan, its path, such as `archive/check`.

        Raises:
            RunNotFound: there is no such run.
            NodeNotFound: the run has no such node.
        """
        top_view = await self._open_reader(run_id).read()
        view, node_id, path = await self._find(top_view, node)
        if view.scheduler is not None and view.scheduler.record_of(node_id) is not None:
            chain = why(view.scheduler, node_id, calls=view.pending_calls)
            chain = await self._with_sub_plans(view, chain)
        else:
            chain = await self._inner_chain(view, node_id)
        explained_nodes = {reason.node_id for reason in chain.reasons}
        notes = [note for note in view.notes if note["node_id"] is None or note["node_id"] in explained_nodes]
        return RunExplanation(top_view, node, _with_path(chain, path), notes)

    async def _find(self, view: "RunView", node: str) -> "tuple[RunView, str, str]":
        """Return the run that has a node, the ID of the node in this run, and the path from the root run."""
        try:
            resolved_path = await resolve_path(view, node, open_reader=self._open_reader)
        except SubPlanNotStarted as error:
            raise NodeNotFound(str(error)) from None
        view, node_id = resolved_path.view, resolved_path.name
        scheduler = view.scheduler
        if scheduler is None:
            raise NodeNotFound(f"the run {view.run_id!r} has no plan{'' if view.is_closed else ' yet'}")
        if scheduler.record_of(node_id) is not None:
            return view, node_id, resolved_path.path
        try:
            item_view = await view_of_item(view, node_id, open_reader=self._open_reader)
            if item_view is not view or await OffloadedNodes(scheduler, self._store).find(node_id) is not None:
                return item_view, node_id, resolved_path.path
        except ItemNotStarted as error:
            raise NodeNotFound(str(error)) from None
        except StoreError as error:
            raise NodeNotFound(unreadable_note(error)["message"]) from None
        ids = [visible_node.id for visible_node, _ in scheduler.state.visible_nodes()]
        similar_ids = get_close_matches(node_id, ids[:1_000], 1)
        hint = f"; did you mean {similar_ids[0]!r}?" if similar_ids else ""
        raise NodeNotFound(f"the run {view.run_id!r} has no node {node_id!r}{hint}")

    async def _chain_of_run(self, view: "RunView") -> Chain:
        if view.scheduler is None:
            return Chain(())
        return await self._with_sub_plans(view, blocking_chain(view.scheduler, calls=view.pending_calls))

    # Sub-plans.

    async def _with_sub_plans(self, view: "RunView", chain: Chain) -> Chain:
        """Return the chain with the reasons of its sub-plans."""
        reasons = [*chain.reasons]
        omitted_count = chain.omitted
        for position, reason in enumerate(chain.reasons):
            if not self._has_sub_plan(view, reason) or self._runs_left <= 0:
                continue
            self._runs_left -= 1
            try:
                child = await self._open_reader(child_run_id(view, reason.node_id)).read()
            except RunNotFound:
                continue
            child_chain = _with_path(await self._chain_of_run(child), f"{reason.node_id}/")
            omitted_count += child_chain.omitted
            reasons[position] = replace(
                reason, causes=[start.node_id for start in child_chain.start_reasons()] or reason.causes
            )
            reasons += child_chain.reasons
        return Chain(reasons[:MAX_REASONS], omitted_count + max(0, len(reasons) - MAX_REASONS))

    def _has_sub_plan(self, view: "RunView", reason: Reason) -> bool:
        if view.scheduler is None or reason.kind not in ("run", "failed", "waiting"):
            return False
        state = view.scheduler.state
        node, map_batch = state.node_of(reason.node_id), state.map_batch_of(reason.node_id)
        has_items = node.for_each is not None and reason.node_id == node.id
        return (node.kind == "plan" and not has_items) or (map_batch is not None and map_batch.count > 0)

    # Offloaded regions.

    async def _inner_chain(self, view: "RunView", node: str) -> Chain:
        """Return the chain of a node of an offloaded region."""
        offloaded_nodes = OffloadedNodes(view.scheduler, self._store)
        unvisited_ids, visited_ids = deque([node]), {node}
        reasons: list[Reason] = []
        while unvisited_ids and len(reasons) < MAX_REASONS:
            node_id = unvisited_ids.popleft()
            inner_node = await offloaded_nodes.find(node_id)
            if inner_node is not None:
                reasons.append(_reason_of_inner(inner_node))
            elif view.scheduler is not None and view.scheduler.record_of(node_id) is not None:
                reasons.append(reason_of(view.scheduler, node_id, call=view.pending_calls.get(node_id)))
            else:
                continue
            causes = [cause for cause in reasons[-1].causes if cause not in visited_ids]
            visited_ids.update(causes)
            unvisited_ids.extend(causes)
        return Chain(reasons, len(unvisited_ids))


def _reason_of_inner(inner_node: InnerNode) -> Reason:
    document = inner_node.document
    status = NodeStatus(document["status"])
    error = document["error"]
    kind = _KIND_OF_STATUS.get(status, "group")
    causes = document["blocked_by"] or document["lineage"]["inputs"]
    detail = f"{error['code']}: {error['message']}" if error else document["reason"] or ""
    message_by_kind = {"completed": "completed", "failed": "failed", "group": "runs with other pure nodes in one call"}
    facts = {"tool": document["tool"], "attempts": document["attempts"]}
    text = message_by_kind.get(kind, f"is {status.value}")
    return Reason(inner_node.id, status, kind, text, detail, causes=causes, facts=facts)


def _with_path(chain: Chain, path: str) -> Chain:
    """Return the chain of a sub-plan with the path from its parent run."""
    if not path:
        return chain
    reasons = [
        replace(reason, node_id=f"{path}{reason.node_id}", causes=[f"{path}{name}" for name in reason.causes])
        for reason in chain.reasons
    ]
    return Chain(reasons, chain.omitted)
