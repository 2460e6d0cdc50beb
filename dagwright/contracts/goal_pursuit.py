"""A request in words as a pursuit: a model plans, the plan is read, its nodes run, a model answers from their results.

What comes next follows from the plan and the records alone. Ids: the model's plan is `plan`, what was read of it
`read`; where it cannot be run, the next one is `plan#2` and `read#2`, and so on. `approve` asks somebody whether it may
run, and `answer` is the last node.

Replay: ids, order and content of the nodes are part of the history of a run.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pydantic_core

from dagwright.contracts.goals import (
    ANSWER,
    APPROVE,
    OWN_IDS,
    PLAN,
    PLAN_INVALID,
    READ,
    READ_MODEL_PLAN,
    REPAIR,
    Goal,
    PlannedNodes,
    goal_from_json,
    is_own,
    may_start_early,
    planned_nodes_from_json,
    tools_read,
)
from dagwright.contracts.limits import MESSAGE_LIMIT_BYTES, cut_text
from dagwright.contracts.model_calls import (
    CallLabels,
    Message,
    ModelCall,
    ModelRequest,
    OutputSchema,
    Planning,
    system,
    user,
)
from dagwright.contracts.model_messages import cut
from dagwright.contracts.model_nodes import CALL_MODEL, model_node
from dagwright.contracts.told_answers import ACCEPTED
from dagwright.plan.compiled import CompiledNode, CompiledPlan, Hole
from dagwright.plan.errors import NodeError
from dagwright.plan.extension import Extension
from dagwright.plan.growing import free_id
from dagwright.plan.model_tools import PURPOSE_ANSWER
from dagwright.plan.pursuit import GivenUp
from dagwright.plan.references import Part, ResultOf
from dagwright.plan.run_state import RunState
from dagwright.plan.states import NodeStatus, Record
from dagwright.plan.stored import Want, is_whole
from dagwright.plan.tools import ToolDeclaration

RESULT_CHARACTERS = 8_000
"""Of one result that the model is told which answers."""
RESULTS_CHARACTERS = 96_000
"""Of all of them."""
LEAST_CHARACTERS = 400
REFERRED_BYTES = 128 * 1024
"""JSON of the results that the call names by reference and that are not in the store: they stand in its arguments."""
_PROBLEMS_TOLD = 5
_PROBLEMS_BYTES = 1_500
"""Of those that stand in a question, above the words of a plan."""


class GoalPursuit:
    """Adds what a request needs: the next plan, the nodes of one that can be run, and the answer."""

    def __init__(self, goal: Goal) -> None:
        self._goal = goal
        self._tools: Mapping[str, ToolDeclaration] | None = None
        """Those of the goal, read once: thousands of messages may name them at one moment."""

    @classmethod
    def from_json(cls, encoded: Mapping[str, Any]) -> "GoalPursuit":
        """Returns the pursuit that a goal stands for.

        Raises:
            ValueError: it is none.
        """
        return cls(goal_from_json(encoded))

    def follow(self, state: RunState) -> Extension | None:
        """Returns what is to be done next for the request.

        Raises:
            GivenUp: the model has written as many plans as it may, and none can be run.
        """
        run = _Progress(state, self._goal)
        read = run.last(READ)
        if read is None:
            return None
        if (found := run.read_by(read)) is None:
            run.refuse_to_end_without_plan(read)
            return None
        if not found["valid"]:
            return run.next_plan(read, found)
        if self._goal.ends_with_plan:
            return None
        clash = {} if run.has_nodes(found) else run.clash_with(found)
        if clash and not self._goal.asks_first:
            return run.next_plan(read, clash)
        if self._goal.asks_first:
            asked = run.last(APPROVE)
            if asked is None:
                return run.approval(read, found)
            approved = run.read_by(asked)
            if approved is None:
                return None
            if not approved["valid"]:
                return run.approval(read, found, problems=approved)
            if not run.has_nodes(approved) and (clash := run.clash_with(approved)):
                return run.approval(read, found, problems=clash)
            read, found = asked, approved
        if not run.has_nodes(found):
            return run.planned(read, found)
        return run.answer() if run.last(ANSWER) is None and run.is_done() else None

    def is_own(self, node_id: str) -> bool:
        """Tells whether an id is one of those that the run itself gives."""
        return is_own(node_id)

    def refusal_of_result(self, node_id: str, result: Any) -> str | None:  # noqa: ARG002 - a pursuit
        """Returns why nobody may give the result of a node: a plan is read and approved, and not set."""
        if not is_own(node_id):
            return None
        return f"{node_id!r} is a node of the run itself, which goes by its result: try it again instead"

    def early_tools(self) -> Mapping[str, ToolDeclaration] | None:
        """Returns what nodes may use that come while the model writes; `None` if none may come."""
        if self._tools is None and self._goal.streams:
            self._tools = tools_read(list(self._goal.tools))
        return self._tools

    def refusal_of_early(
        self, state: RunState, extension: Extension, *, tools: Mapping[str, ToolDeclaration]
    ) -> str | None:
        """Returns why nodes may not run before the plan is known that they are of.

        Args:
            tools: those of `early_tools`.
        """
        ids = [node.id for node in (*state.plan.nodes[: extension.base], *extension.nodes)]
        for node in extension.nodes:
            if not may_start_early(node, tools):
                return f"{node.id!r} has to wait until the plan is whole"
            if (own := next((ids[number] for number in node.dependencies if is_own(ids[number])), None)) is not None:
                return f"{node.id!r} waits for {own!r}, which is no node of the plan"
        return None


class _Progress:
    """How far a run has come with a request."""

    def __init__(self, state: RunState, goal: Goal) -> None:
        self._state = state
        self._goal = goal

    def last(self, own_id: str) -> int | None:
        """Returns the number of the newest node that the run has added under an id of its own."""
        numbers = [number for number, node in self._written() if node.id.partition("#")[0] == own_id]
        return numbers[-1] if numbers else None

    def _written(self) -> Iterator[tuple[int, CompiledNode]]:
        return enumerate(self._state.plan.nodes[: self._state.plan.written_count])

    def _planned(self) -> Iterator[tuple[CompiledNode, Record]]:
        """Yields the nodes of the plan, and what people have added to it, as far as nothing stands for them."""
        for node, record in self._state.shown():
            if node.id.partition("#")[0] not in OWN_IDS and record.status is not NodeStatus.SUPERSEDED:
                yield node, record

    def read_by(self, number: int) -> Mapping[str, Any] | None:
        """Returns what was read of a plan; `None` as long as, or if, nothing is."""
        record = self._state.records[number]
        if record.status is not NodeStatus.COMPLETED:
            return None
        found = record.result
        if not isinstance(found, Mapping) or not isinstance(found.get("valid"), bool):
            name = self._state.plan.nodes[number].id
            raise GivenUp(NodeError("invalid_result", f"the result of {name!r} is not what was read of a plan"))
        return found

    def refuse_to_end_without_plan(self, read: int) -> None:
        """Looks whether a run is about to end as if it had reached something, though no plan was read.

        Raises:
            GivenUp: it is.
        """
        records = [record for _, record in self._state.shown()]
        if not all(record.status.is_final for record in records):
            return
        last = self.last(PLAN)
        number = read if last is None or self._state.records[last].status is NodeStatus.COMPLETED else last
        record, node_id = self._state.records[number], self._state.plan.nodes[number].id
        if record.status is NodeStatus.FAILED and not any(each.status is NodeStatus.COMPLETED for each in records):
            # A run in which nothing was done fails by itself.
            return
        message = f"there is no plan to go on with: {node_id!r} was {record.status.value}"
        raise GivenUp(record.error or NodeError("no_plan", f"{message}{f': {record.reason}' if record.reason else ''}"))

    def clash_with(self, found: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns what is wrong with a plan that names nodes as others are named that people have added; or nothing."""
        nodes = _planned_nodes(found).nodes
        taken = [node.id for node in nodes if self._is_taken(node.id) and not self.is_there(node)]
        problems = [
            {"code": "duplicate_id", "message": f"the run has another node {node_id!r} already: choose another id"}
            for node_id in taken
        ]
        return {"problems": problems, "problem_count": len(problems)} if problems else {}

    def _is_taken(self, node_id: str) -> bool:
        return self._state.find(node_id) is not None or self._state.task_of_call(node_id) is not None

    def has_nodes(self, found: Mapping[str, Any]) -> bool:
        """Tells whether all nodes of a plan are in the run; some may be before it was whole."""
        ids = [str(node["id"]) for node in found["nodes"]]
        if any(self._state.number_of(node_id) is None for node_id in ids):
            return False
        # Those that people have added are others, unless they do the same.
        added = {node_id for node_id in ids if self._state.is_added_by_hand(node_id)}
        return not added or all(self._is_same(node) for node in _planned_nodes(found).nodes if node.id in added)

    def is_there(self, node: CompiledNode) -> bool:
        """Tells whether a node of a plan was taken before the plan was whole."""
        return self._state.number_of(node.id) is not None and self._goal.streams and self._is_same(node)

    def _is_same(self, node: CompiledNode) -> bool:
        number = self._state.number_of(node.id)
        assert number is not None
        there = self._state.plan.nodes[number]
        return (there.tool, there.arguments, there.holes) == (node.tool, node.arguments, node.holes)

    def is_done(self) -> bool:
        """Tells whether every node of the plan has ended."""
        return all(record.status.is_final for _, record in self._planned())

    def _free(self, own_id: str) -> str:
        number = self._state.number_of(own_id)
        assert number is not None
        return free_id(self._state, number)

    def _extension(self, *nodes: CompiledNode, output: tuple[Any, Sequence[Hole]] | None = None) -> Extension:
        tools = {tool.name: tool for tool in (CALL_MODEL, READ_MODEL_PLAN)}
        named = {node.tool for node in nodes}
        return Extension(
            self._state.plan.written_count,
            nodes,
            {name: tool for name, tool in tools.items() if name in named},
            output=output,
        )

    # The plan.

    def next_plan(self, read: int, found: Mapping[str, Any]) -> Extension:
        """Returns the call in which the model is shown what is wrong with its plan, and what reads the next one."""
        last = self.last(PLAN)
        assert last is not None
        written = sum(node.id.partition("#")[0] == READ for _, node in self._written())
        if written >= self._goal.plans:
            told = f"the model wrote {written} plan{'s' if written > 1 else ''}, and none can be run"
            raise GivenUp(
                NodeError(PLAN_INVALID, cut_text(f"{told}; {_problems(found)}", max_bytes=MESSAGE_LIMIT_BYTES))
            )
        plan_id, read_id = self._free(PLAN), self._free(READ)
        call = replace(
            plan_request(self._goal, [user("" if "repair" in found else _clash_words(found))], purpose=REPAIR),
            # What was said before lies in the store, and is not said again in each call.
            before="",
        )
        holes: list[Hole] = [
            (("before",), (ResultOf(self._state.plan.nodes[last].id, "result", ("conversation",)),)),
        ]
        if "repair" in found:
            repair = ResultOf(self._state.plan.nodes[read].id, "result", ("repair",))
            holes.append((("messages", 0, "content"), (repair,)))
        # What clashes was not taken, so it must not be told as if it stood.
        if self._goal.streams and "repair" in found:
            holes.append(
                (("planning", "accepted"), (ResultOf(self._state.plan.nodes[last].id, "result", ("accepted",)),))
            )
        plan = model_node(plan_id, call, title="mending the plan", dependencies=[read], holes=holes)
        return self._extension(
            _telling_accepted(plan, self._goal),
            read_node(read_id, plan_id, self._goal, number=self._state.plan.written_count),
            output=output_of_plan(self._goal, read_id),
        )

    def approval(self, read: int, found: Mapping[str, Any], *, problems: Mapping[str, Any] | None = None) -> Extension:
        """Returns the node that asks whether a plan may run; whoever says so may give another plan instead."""
        last = self.last(APPROVE)
        node_id = APPROVE if last is None else self._free(APPROVE)
        words = str(found.get("words", ""))
        if problems is not None:
            told = cut_text(_problems(problems), max_bytes=_PROBLEMS_BYTES)
            words = f"The plan that was given instead cannot be run: {told}\n\n{words}"
        if unseen := len(found["nodes"]) - len(_shown(found)):
            words = f"{words}\n\nOf {unseen:,} of its nodes not all is shown; the policy decides on each of them."
        prompt = f"May this plan run?\n\n{words}"
        node = CompiledNode(
            node_id,
            title="asking whether the plan may run",
            tool=READ_MODEL_PLAN.name,
            arguments={"plan": found["plan"], "tools": list(self._goal.tools), **_allowed(self._goal)},
            dependencies=(read if last is None else last,),
            approval={"type": "APPROVAL", "prompt": prompt},
            cache_s=0.0,
        )
        return self._extension(node)

    def planned(self, read: int, found: Mapping[str, Any]) -> Extension:
        """Returns the nodes of a plan that the run does not have; those that wait for nothing wait for what read it."""
        base = self._state.plan.written_count
        planned = _planned_nodes(found)
        numbers = self._numbers_of(planned, base=base)
        shown = _shown(found)
        nodes = []
        wanted: dict[str, Sequence[Want]] = {}
        for place, node in enumerate(planned.nodes):
            if numbers[place] < base:
                there = self._state.newest_id(node.id)
                wanted |= {there: node.wanted} if node.wanted else {}
                continue
            needed = tuple(numbers[number] for number in node.dependencies) or (read,)
            # Somebody has seen it. What the policy refuses is refused all the same.
            is_seen = self._goal.asks_first and node.id in shown
            approval = "never" if is_seen and node.approval == "policy" else node.approval
            nodes.append(replace(node, dependencies=needed, approval=approval))
        return Extension(base, tuple(nodes), planned.tools, wanted)

    def _numbers_of(self, planned: PlannedNodes, *, base: int) -> list[int]:
        """Returns the number that each node of a plan has in the run, or gets."""
        numbers: list[int] = []
        following = base
        for node in planned.nodes:
            there = self._state.number_of(self._state.newest_id(node.id)) if self.is_there(node) else None
            numbers.append(following if there is None else there)
            following += there is None
        return numbers

    # The answer.

    def answer(self) -> Extension:
        """Returns the call in which the model answers the request from the results."""
        steps = list(self._planned())
        limit = min(RESULT_CHARACTERS, max(LEAST_CHARACTERS, RESULTS_CHARACTERS // max(1, len(steps))))
        messages = [system(self._goal.answer_prompt), user(f"Request:\n{self._goal.words}")]
        holes: list[Hole] = []
        cuts: dict[int, int] = {}
        room = REFERRED_BYTES
        for node, record in steps:
            size = len(pydantic_core.to_json(record.result)) if is_whole(record.result) else 0
            if room >= size:
                room -= size
                # By reference, so that a fork in which a result comes out otherwise has another answer.
                cuts[len(messages)] = limit
                holes.append((("messages", len(messages), "content"), _step_parts(node)))
                messages.append(user(""))
            else:
                messages.append(user(_step_words(node, record, limit=limit)))
        request = ModelRequest(
            ModelCall(tuple(messages), config=self._goal.config, labels=CallLabels(purpose=PURPOSE_ANSWER)), cuts=cuts
        )
        numbers = [number for number, node in self._written() if node.id.partition("#")[0] not in OWN_IDS]
        needed = {number for node in self._state.plan.nodes for number in node.dependencies}
        last = [number for number in numbers if number not in needed] or numbers
        node = model_node(ANSWER, request, title="answering the request", dependencies=last, holes=holes)
        whatever = replace(node, join=("all_done", 0))
        return self._extension(whatever, output=(None, (((), (ResultOf(ANSWER, "result", ("message", "content")),)),)))


def _step_parts(node: CompiledNode) -> tuple[Part, ...]:
    """Returns what is told of a step: what it is for, its state, why it has no result, and its result."""
    state, error, result = (ResultOf(node.id, part) for part in ("status", "error", "result"))
    return f"{_head(node)}: ", state, "\nError: ", error, "\nResult: ", result


def _step_words(node: CompiledNode, record: Record, *, limit: int) -> str:
    """Returns the same as it stands now, of a step whose result is too large to be told of with all others."""
    error = pydantic_core.to_json(record.error.to_json() if record.error else None).decode()
    text = record.result if isinstance(record.result, str) else pydantic_core.to_json(record.result).decode()
    return cut(f"{_head(node)}: {record.status.value}\nError: {error}\nResult: {text}", limit)


def _head(node: CompiledNode) -> str:
    return f"Step {node.id!r}" + (f" ({node.title})" if node.title else "")


def _planned_nodes(found: Mapping[str, Any]) -> PlannedNodes:
    """Returns the nodes of a plan that was read.

    Raises:
        GivenUp: there are none.
    """
    try:
        return planned_nodes_from_json(found)
    except ValueError as error:
        raise GivenUp(NodeError("invalid_result", str(error))) from None


def _clash_words(found: Mapping[str, Any]) -> str:
    """Returns what a model is told whose plan was right by itself, and does not go with what people have added."""
    return f"The plan cannot be run: {_problems(found)}. Write the whole plan again, with other ids for these nodes."


def _shown(found: Mapping[str, Any]) -> frozenset[str]:
    """Returns the ids of the nodes of a plan that whoever approves it sees as a whole."""
    return frozenset(found.get("shown", ()))


def _problems(found: Mapping[str, Any]) -> str:
    """Returns the first problems of a plan in words."""
    problems = [problem for problem in found.get("problems", ()) if isinstance(problem, Mapping)]
    told = [
        f"{problem.get('code')}{f' at {place}' if (place := problem.get('pointer')) else ''}: {problem.get('message')}"
        for problem in problems[:_PROBLEMS_TOLD]
    ]
    count = found.get("problem_count", len(problems))
    more = count - len(told) if type(count) is int else 0
    return "; ".join([*told, *([f"and {more} more"] if more > 0 else [])])


# The plan that a run begins with.


def goal_plan(goal: Goal, messages: Sequence[Message], *, title: str) -> CompiledPlan:
    """Returns the plan that a run for a request starts with: the planner's first call, and what reads its answer.

    Args:
        messages: what the planner is told.
        title: of the run.
    """
    call = model_node(PLAN, plan_request(goal, messages, purpose=PLAN), title="planning")
    plan = _telling_accepted(call, goal)
    output = output_of_plan(goal, READ) or (None, ())
    return CompiledPlan(
        nodes=(plan, read_node(READ, PLAN, goal, number=0)),
        tools={CALL_MODEL.name: CALL_MODEL, READ_MODEL_PLAN.name: READ_MODEL_PLAN},
        title=title,
        output=output[0],
        output_holes=output[1],
        pursuit=goal.to_json(),
    )


def plan_request(goal: Goal, messages: Sequence[Message], *, purpose: str) -> ModelRequest:
    """Returns a call in which a model is asked for a plan."""
    call = ModelCall(
        tuple(messages),
        config=goal.config,
        # What does not fit is read all the same, as models write it.
        output=OutputSchema("plan", goal.schema, is_binding=False),
        labels=CallLabels(purpose=purpose),
    )
    return ModelRequest(call, is_continued=True, planning=Planning(goal.tools) if goal.streams else None)


def _telling_accepted(plan: CompiledNode, goal: Goal) -> CompiledNode:
    """Returns the node that asks for a plan, with what is told of its answer if that is large."""
    return replace(plan, wanted=(*plan.wanted, ACCEPTED)) if goal.streams else plan


def read_node(node_id: str, plan_id: str, goal: Goal, *, number: int) -> CompiledNode:
    """Returns the node that reads the plan that a model wrote.

    Args:
        plan_id: of the model's call.
        number: of that node.
    """
    holes: list[Hole] = [
        (("plan",), (ResultOf(plan_id, "result", ("output",)),)),
        (("text",), (ResultOf(plan_id, "result", ("message", "content")),)),
    ]
    arguments: dict[str, Any] = {"plan": None, "text": None, "tools": list(goal.tools), **_allowed(goal)}
    if goal.streams:
        arguments["accepted"] = None
        holes.append((("accepted",), (ResultOf(plan_id, "result", ("accepted",)),)))
    return CompiledNode(
        node_id,
        title="reading the plan",
        tool=READ_MODEL_PLAN.name,
        arguments=arguments,
        holes=tuple(holes),
        dependencies=(number,),
        approval="never",
        cache_s=0.0,
    )


def _allowed(goal: Goal) -> Mapping[str, Any]:
    """Returns what whoever reads a plan is told of what it may do beside using tools."""
    return {"inline_agents": True} if goal.inline_agents else {}


def output_of_plan(goal: Goal, read_id: str) -> tuple[Any, Sequence[Hole]] | None:
    """Returns the output of a run that ends with the plan; `None` for any other one."""
    if not goal.ends_with_plan:
        return None
    return None, (((), (ResultOf(read_id, "result", ("plan",)),)),)
