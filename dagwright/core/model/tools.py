"""Tool declarations: what the core knows of a tool, without the code that runs it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from dagwright.core.model.agent_cards import AgentCard
from dagwright.core.model.worker_cards import WorkerCard


class Effects(StrEnum):
    """What calling a tool does to the world; decides how it is run (docs/tools.md)."""

    PURE = "pure"
    READ = "read"
    IDEMPOTENT = "idempotent"
    WRITE = "write"


@dataclass(frozen=True, slots=True)
class ToolDeclaration:
    """Describes a tool as far as a plan has to know it.

    Args:
        name: the Temporal activity type.
        effects: what a call does to the world; what is not declared counts as `write`.
        input_schema: JSON Schema (2020-12) of the arguments object; `None` takes any arguments.
        output_schema: JSON Schema of the result, from the function's annotation; `None` if it is not known.
        plain_parameters: parameters that take what their schema says, with no conversion of the tool's own.
        task_queue: the queue whose workers serve the tool; `None` is the queue of the workflow.
        timeout_s: seconds one attempt may take; 0 for a pure tool that names none: 1 s in a region, 60 s otherwise, and
            for a worker that names none: what the question says that calls it, 60 s otherwise.
        max_parallel: calls of the tool that one run keeps in flight at once; `None` is unlimited.
        max_attempts: tries including the first; 1 for `write` unless declared.
        version: short text that changes when the tool's code does.
        is_pinned: each call carries the version that the plan was checked against, and is refused if the tool has
            another by then: what stands behind it changes without us.
        is_foreign: the activity is served by a worker that is not Dagwright's, so everything must be inline.
        workflow: type of the workflow that each call starts as a child of the run, in place of an activity; such a tool
            is foreign too. `None` for every other tool.
        asks_models: a call asks models by itself, so in a run with a budget it starts only when there is some left.
        effects_by: how the effects of a call depend on an argument, `{"argument": name, "default": value, "effects":
            {value: effects}}`; a value that is not listed, or not known before the call, has the effects of the tool.
            Nodes may declare such a call `idempotent`. `None` if all calls have the same effects.
        secrets: names of the secrets that the tool takes in its arguments; none at all if it is empty, `None` leaves
            that to the settings of the worker.
        sends_to_hosts: whether the settings of the worker bind secrets to the hosts of its calls.
        undo: name of the tool that takes the effect of a call back; it is called with `{"key": idempotency key of the
            call, "arguments": its arguments, "result": its result, or null if nobody knows how it ended}`.
        sets: name in a session, without `@`, that the identity of a call's result becomes.
        returns: what the identity of a result is the id of: an entity type such as `fund`, or something else, such as
            `role`; `None` if nobody has said it. See `entity_arguments`.
        resolver: the resolver whose `find` the tool is, as JSON; `None` for any other tool. See `resolvers`.
        description: one paragraph for people and models.
        agent: the card of the agent that the tool is, if it is one.
        worker: what the tool needs and puts out, if it is a worker.
        aliases: former names of the tool, for hints: new plans use its name.
    """

    name: str
    effects: Effects = Effects.WRITE
    input_schema: Mapping[str, Any] | None = None
    task_queue: str | None = None
    timeout_s: float = 60.0
    max_parallel: int | None = None
    max_attempts: int | None = None
    version: str = ""
    is_pinned: bool = False
    is_foreign: bool = False
    workflow: str | None = None
    asks_models: bool = False
    effects_by: Mapping[str, Any] | None = None
    secrets: Sequence[str] | None = None
    sends_to_hosts: bool = False
    undo: str | None = None
    sets: str | None = None
    returns: str | None = None
    resolver: Mapping[str, Any] | None = None
    description: str = ""
    agent: AgentCard | None = None
    worker: WorkerCard | None = None
    output_schema: Mapping[str, Any] | None = None
    plain_parameters: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()

    @property
    def never_takes_secrets(self) -> bool:
        """Whether no setting can give a secret to the tool, whose results would carry it on."""
        return self.effects is Effects.PURE or (self.secrets is not None and not self.secrets)


_EFFECTS: Mapping[str, Effects] = {each.value: each for each in Effects}

TOLD_FIELDS: Mapping[str, type] = {
    "task_queue": str, "max_parallel": int, "max_attempts": int, "version": str, "is_pinned": bool, "is_foreign": bool,
    "workflow": str,
    "asks_models": bool, "effects_by": dict, "undo": str, "sets": str, "resolver": dict,
}  # fmt: skip
"""What a run knows of a tool beside its effects, in each form in which a declaration travels -> its JSON type."""


def effects_of_call(
    tool: ToolDeclaration, arguments: Mapping[str, Any], *, unknown: Iterable[Sequence[Any]] = ()
) -> Effects:
    """Return the effects of a call; those of the tool where an argument that decides is not known.

    Args:
        unknown: paths into the arguments whose values are not there yet.
    """
    rule = tool.effects_by
    if rule is None:
        return tool.effects
    name = rule.get("argument")
    if any(not path or path[0] == name for path in unknown):
        return tool.effects
    value, known = arguments.get(str(name), rule.get("default")), rule.get("effects")
    found = known.get(value) if isinstance(known, Mapping) and isinstance(value, str) else None
    return _EFFECTS.get(found, tool.effects) if isinstance(found, str) else tool.effects


def problem_of_rule(rule: Any) -> str | None:
    """Return what is wrong with `ToolDeclaration.effects_by`; `None` if nothing is."""
    known = {"argument", "default", "effects"}
    if not isinstance(rule, Mapping) or not {*rule} <= known or not isinstance(rule.get("argument"), str):
        return "expected an object with argument, default and effects"
    effects = rule.get("effects")
    if not isinstance(effects, Mapping) or not all(
        isinstance(each, str) and each in _EFFECTS for each in effects.values()
    ):
        return f"effects: expected an object of values, each with one of {', '.join(Effects)}"
    return None


def with_undoing(names: Iterable[str], tools: Mapping[str, ToolDeclaration]) -> list[str]:
    """Returns the names of tools, and behind them those of what takes back what they do, each once."""
    named = list(dict.fromkeys(names))
    undoing = (tools[name].undo for name in named if name in tools)
    return list(dict.fromkeys([*named, *(name for name in undoing if name is not None)]))


def parameter_name(key: str, properties: Mapping[str, Any]) -> str:
    """Returns the declared name that an argument key as written stands for (`order-id` -> `order_id`)."""
    if key in properties:
        return key
    underscored = key.replace("-", "_")
    return underscored if underscored in properties else key


MODEL_TOOL = "call_model"
"""The tool whose every call is one call of a model."""
PLAN_READER = "read_model_plan"
"""The tool that reads a plan which a model has written: it asks no model, and that plan has been paid for."""
PURPOSE_ANSWER = "answer"
"""Purpose of a call that makes the answer of what there is: a run that finishes makes it, whatever is left."""
AGENT_PREFIX = "agent."
"""Begins the name of the tool that an agent is; the name of the agent follows."""
AGENT_KIND, GOAL_KIND, ROUNDS_KIND = "agent", "goal", "rounds"
"""Kinds of pursuits: what a plan grows by that is the run of an agent, of a request in words, or of a question that is
answered in rounds of workers."""
