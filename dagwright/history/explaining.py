"""Says why a run, or a node of it, is where it is: from its history, over its sub-plans, with no worker.

NodeUnknown        the run has no such node, or does not know it yet
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from dagwright.core.boundary.wire import ERROR_PLAN_FAILED
from dagwright.core.errors import DagwrightError
from dagwright.core.model.lookups import resolved_lookups
from dagwright.core.model.requests import BUDGET_TASK, Request
from dagwright.core.model.states import NodeStatus
from dagwright.core.model.times import format_time
from dagwright.features.explain.reasons import Kind, Reason, reason_of
from dagwright.features.explain.why import REASONS_TOLD, Chain, sentence, what_holds, why
from dagwright.features.run_scheduler import RunScheduler
from dagwright.history.map_items import ItemNotBegun, OpenFeed, view_of_item
from dagwright.history.node_paths import SubPlanNotBegun, child_of, follow
from dagwright.history.offloaded_regions import InnerNode, Insides, unreadable_note
from dagwright.history.run_reader import RunNotFound, RunView
from dagwright.protocol.failures import FROM_NODES
from dagwright.store import PayloadStore, StoreError

RUNS_LOOKED_AT = 30
"""Sub-plans and runs of chunks that one question reads: each costs its history."""
_SENTENCES = 3
_KIND_OF_INNER: dict[NodeStatus, Kind] = {
    NodeStatus.COMPLETED: "completed",
    NodeStatus.FAILED: "failed",
    NodeStatus.BLOCKED: "blocked",
    NodeStatus.SKIPPED: "skipped",
    NodeStatus.CANCELLED: "cancelled",
}


class NodeUnknown(DagwrightError):
    """A run has no node of that name, or does not know it yet."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a run or one node of it is where it is.

    Args:
        view: the run that was asked about.
        node: the node or item, with the path to its sub-plan; empty for the whole run.
        chain: the reasons; names in sub-plans have the path to them.
        notes: what else is worth saying of it.
    """

    view: RunView
    node: str
    chain: Chain
    notes: Sequence[dict[str, Any]] = ()

    def words(self, clock: Callable[[float], str]) -> str:
        """Returns it in a sentence or some.

        Args:
            clock: returns a time in words.
        """
        starts = [*self.starts()]
        told = [sentence(self.chain, start, clock=clock) for start in starts[:_SENTENCES]]
        if (left := len(starts) + self.chain.omitted - len(told)) > 0 and not self.node:
            told.append(f"and {left:,} more")
        if (ended_by := self.ended_by()) is not None:
            told.append(f"the run ended by {ended_by}")
        if not told:
            error = self._error()
            told = [str(error["message"])] if error else [self._words_of_nothing()]
        return "; ".join(told)

    def ended_by(self) -> str | None:
        """Returns what a run ended by where none of its reasons says so, with its code."""
        error = self._error() if self.view.is_closed and not self.node and self.chain.reasons else None
        if error is None or error["code"] in {ERROR_PLAN_FAILED, *FROM_NODES}:
            # That no node was completed which the plan is for, its nodes say themselves.
            return None
        if any(str(error["message"]) in reason.detail for reason in self.chain.reasons):
            return None
        return f"{error['code']}: {error['message']}"

    def starts(self) -> Iterator[Reason]:
        """Yields the reasons that are not behind another one."""
        yield from self.chain.reasons[:1] if self.node else self.chain.starts()

    def to_json(self) -> dict[str, Any]:
        """Returns the document of `explain`."""
        return {
            "run_id": self.view.workflow_id,
            "execution_id": self.view.run_id,
            "status": self.view.status,
            "node_id": self.node or None,
            "message": self.words(format_time),
            "chain": [reason.to_json() for reason in self.chain.reasons],
            "omitted": self.chain.omitted,
            "error": self._error(),
            "notes": list(self.notes),
        }

    def _error(self) -> dict[str, Any] | None:
        error: dict[str, Any] | None = self.view.unfilled_document()["error"]
        return error

    def _words_of_nothing(self) -> str:
        if self.view.is_closed:
            return f"the run {self.view.workflow_id} {self.view.status.replace('_', ' ')}"
        if self.asked_before():
            return "; ".join(f"{one.id} {one.waits_for.partition(chr(10))[0]}" for one in self.asked_before())
        scheduler = self.view.scheduler
        nodes = zip(scheduler.plan.nodes, scheduler.records, strict=True) if scheduler is not None else ()
        looking = [
            str(node.title) for node, record in nodes if node.kind == "lookup" and record.status is NodeStatus.RUNNING
        ]
        if looking:
            return f"the run {self.view.workflow_id} is {'; '.join(looking[:_SENTENCES])}"
        return f"the run {self.view.workflow_id} has no step that has begun"

    def bound(self) -> Sequence[dict[str, Any]]:
        """Returns what the run has bound of what it looked up; nothing where one node was asked about."""
        scheduler = self.view.scheduler
        return [*resolved_lookups(scheduler.plan, scheduler.records)] if scheduler is not None and not self.node else ()

    def asked_before(self) -> Sequence[Request]:
        """Returns what is asked for no node that is shown: for inputs, for leave, for what is looked up."""
        scheduler = self.view.scheduler
        if scheduler is None or self.node:
            return ()
        shown = {reason.node for reason in self.chain.reasons}
        return [
            one
            for one in scheduler.features.feedback.requests.open.values()
            if one.task not in shown and _is_before(scheduler, one)
        ]


def _is_before(scheduler: RunScheduler, request: Request) -> bool:
    """Tells whether a request belongs to no node, or to one that looks something up before all others."""
    return request.task in ("", BUDGET_TASK) or scheduler.state.node_of(request.task).kind == "lookup"


class Explaining:
    """Explains the runs of one namespace.

    Args:
        feed: opens the feed of a run.
        store: where the insides of large regions lie.
    """

    def __init__(self, feed: OpenFeed, store: PayloadStore) -> None:
        self._feed = feed
        self._store = store
        self._runs_left = RUNS_LOOKED_AT

    async def of_run(self, workflow_id: str) -> Explanation:
        """Returns what holds a run back now, or why it ended as it did.

        Raises:
            RunNotFound: there is no such run.
        """
        view = await self._feed(workflow_id).read()
        return Explanation(view, "", await self._held(view), notes=view.notes)

    async def of_node(self, workflow_id: str, node: str) -> Explanation:
        """Returns why a node or item is where it is.

        Args:
            node: its id; in a sub-plan the path to it, `archive/check`.

        Raises:
            RunNotFound: there is no such run.
            NodeUnknown: it has no such node.
        """
        above = await self._feed(workflow_id).read()
        view, name, path = await self._find(above, node)
        if view.scheduler is not None and view.scheduler.record_of(name) is not None:
            chain = why(view.scheduler, name, calls=view.pending)
            chain = await self._with_sub_plans(view, chain)
        else:
            chain = await self._inner_chain(view, name)
        told = {reason.node for reason in chain.reasons}
        notes = [note for note in view.notes if note["node_id"] is None or note["node_id"] in told]
        return Explanation(above, node, _below(chain, path), notes)

    async def _find(self, view: RunView, node: str) -> tuple[RunView, str, str]:
        """Returns the run that knows a node, its name there, and the path from the run above."""
        try:
            found = await follow(view, node, feed=self._feed)
        except SubPlanNotBegun as unknown:
            raise NodeUnknown(str(unknown)) from None
        view, node = found.view, found.name
        scheduler = view.scheduler
        if scheduler is None:
            raise NodeUnknown(f"the run {view.workflow_id!r} has no plan{'' if view.is_closed else ' yet'}")
        if scheduler.record_of(node) is not None:
            return view, node, found.path
        try:
            there = await view_of_item(view, node, feed=self._feed)
            if there is not view or await Insides(scheduler, self._store).find(node) is not None:
                return there, node, found.path
        except ItemNotBegun as unknown:
            raise NodeUnknown(str(unknown)) from None
        except StoreError as error:
            raise NodeUnknown(unreadable_note(error)["message"]) from None
        near = get_close_matches(node, [each.id for each, _ in scheduler.state.shown()][:1_000], 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise NodeUnknown(f"the run {view.workflow_id!r} has no node {node!r}{hint}")

    async def _held(self, view: RunView) -> Chain:
        if view.scheduler is None:
            return Chain(())
        return await self._with_sub_plans(view, what_holds(view.scheduler, calls=view.pending))

    # Sub-plans.

    async def _with_sub_plans(self, view: RunView, chain: Chain) -> Chain:
        """Returns the chain with what holds its sub-plans back, or what they failed of, behind them."""
        reasons = [*chain.reasons]
        omitted = chain.omitted
        for place, reason in enumerate(chain.reasons):
            if not self._leads_below(view, reason) or self._runs_left <= 0:
                continue
            self._runs_left -= 1
            try:
                child = await self._feed(child_of(view, reason.node)).read()
            except RunNotFound:
                continue
            below = _below(await self._held(child), f"{reason.node}/")
            omitted += below.omitted
            reasons[place] = replace(reason, because=[each.node for each in below.starts()] or reason.because)
            reasons += below.reasons
        return Chain(reasons[:REASONS_TOLD], omitted + max(0, len(reasons) - REASONS_TOLD))

    def _leads_below(self, view: RunView, reason: Reason) -> bool:
        if view.scheduler is None or reason.kind not in ("run", "failed", "waiting"):
            return False
        node, chunk = view.scheduler.state.node_of(reason.node), view.scheduler.state.chunk_of(reason.node)
        has_items = node.for_each is not None and reason.node == node.id
        return (node.kind == "plan" and not has_items) or (chunk is not None and chunk.count > 0)

    # Inside of large regions.

    async def _inner_chain(self, view: RunView, node: str) -> Chain:
        """Returns the chain of a node that the run itself does not hold."""
        insides = Insides(view.scheduler, self._store)
        waiting, known = deque([node]), {node}
        reasons: list[Reason] = []
        while waiting and len(reasons) < REASONS_TOLD:
            name = waiting.popleft()
            inner = await insides.find(name)
            if inner is not None:
                reasons.append(_reason_of_inner(inner))
            elif view.scheduler is not None and view.scheduler.record_of(name) is not None:
                reasons.append(reason_of(view.scheduler, name, call=view.pending.get(name)))
            else:
                continue
            behind = [each for each in reasons[-1].because if each not in known]
            known.update(behind)
            waiting.extend(behind)
        return Chain(reasons, len(waiting))


def _reason_of_inner(inner: InnerNode) -> Reason:
    document = inner.document
    status = NodeStatus(document["status"])
    error = document["error"]
    kind = _KIND_OF_INNER.get(status, "group")
    needs = document["blocked_by"] or document["lineage"]["inputs"]
    detail = f"{error['code']}: {error['message']}" if error else document["reason"] or ""
    message = {"completed": "completed", "failed": "failed", "group": "runs with other pure nodes in one call"}
    facts = {"tool": document["tool"], "attempts": document["attempts"]}
    words = message.get(kind, f"is {status.value}")
    return Reason(inner.id, status, kind, words, detail, because=needs, facts=facts)


def _below(chain: Chain, path: str) -> Chain:
    """Returns the chain of a sub-plan in the words of the run above it."""
    if not path:
        return chain
    reasons = [
        replace(each, node=f"{path}{each.node}", because=[f"{path}{name}" for name in each.because])
        for each in chain.reasons
    ]
    return Chain(reasons, chain.omitted)
