"""Declarations of the tools of a plan, without the code that runs them.

The card of a worker tool names the slots that the tool requires and fills. Planners read the card, and the run enforces
the slots. A card is immutable plain data, so it travels with a declaration or a compiled plan. An agent is declared as
a tool too (`dagwright.core.model.agents`).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

if TYPE_CHECKING:
    from dagwright.core.model.agents import AgentCard

GoalType = Literal["support", "deliverable"]

SUB_GOAL = "sub_goal"
"""Parameter of a worker tool that receives the id of its sub-goal; only the run can set it."""
_MAX_SLOTS = 50
"""Maximum number of slots of a card. Every plan that uses the tool contains its card."""


def _checked_slot(name: str) -> str:
    if not name.isidentifier() or len(name) > 100:
        raise ValueError(f"{name[:50]!r} is not a slot name: letters, digits and _, no digit first, at most 100")
    if name == SUB_GOAL:
        raise ValueError(f"a slot cannot be called {SUB_GOAL!r}: the run sets this parameter")
    return name


def distinct_names(names: tuple[str, ...]) -> tuple[str, ...]:
    if duplicates := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"duplicate name {duplicates[0]!r}")
    return names


def _not_empty(text: str) -> str:
    if not text.strip():
        raise ValueError("the text is empty")
    return text


_Sentence = Annotated[str, Field(max_length=1_000), AfterValidator(_not_empty)]
_Slots = Annotated[
    tuple[Annotated[str, AfterValidator(_checked_slot)], ...],
    Field(strict=False, max_length=_MAX_SLOTS),
    AfterValidator(distinct_names),
]


class WorkerCard(BaseModel):
    """Description of a worker tool for planners, and the slots that the run enforces."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    description: Annotated[str, Field(max_length=4_000), AfterValidator(_not_empty)]
    """Purpose of the worker tool; it must distinguish the tool from all other worker tools."""
    preconditions: Annotated[tuple[_Sentence, ...], Field(strict=False, max_length=_MAX_SLOTS)] = ()
    """Conditions for choosing the worker tool, one sentence each. Only planners evaluate these conditions."""
    requires: _Slots = ()
    """Slots that must be filled before the worker tool is called; the run checks this for every planner."""
    outputs: _Slots
    """Slots that the tool fills. A result has exactly these slots; each of them may be null."""
    same_as: dict[str, Annotated[str, AfterValidator(_checked_slot)]] = {}
    """Slot that the tool fills -> slot of another worker tool with the same meaning. The first slot can replace the
    second slot."""
    goal_type: GoalType
    """`deliverable` if its outputs are part of the answer, `support` if only other worker tools need them."""
    takes_sub_goal: bool = False
    """Whether the tool receives the id of its sub-goal."""

    @model_validator(mode="after")
    def _check_slots(self) -> Self:
        if not self.outputs:
            raise ValueError("outputs: a worker tool fills at least one slot")
        for slot, other_slot in self.same_as.items():
            if slot not in self.outputs or other_slot in self.outputs:
                message = f"{slot!r} must be a slot of the tool, and {other_slot!r} a slot of another worker tool"
                raise ValueError(f"same_as: {message}")
        return self

    def to_json(self) -> dict[str, Any]:
        """Return the card as JSON, without default values."""
        return self.model_dump(mode="json", exclude_defaults=True)

    def fills(self, slot: str, required_slot: str) -> bool:
        """Return whether the slot `slot` of the card can be used where `required_slot` is required."""
        return required_slot in (slot, self.same_as.get(slot))

    def slots_problem(self, names: Collection[str], *, is_partial: bool) -> str | None:
        """Return the missing and the undeclared slots of a result; `None` if it has exactly the declared slots.

        Args:
            names: slots of the result; a partial result may omit some.
        """
        missing_slots = [] if is_partial else [slot for slot in self.outputs if slot not in names]
        unknown_slots = sorted(name for name in names if name not in self.outputs)
        return "; ".join(_slot_messages(missing_slots, unknown_slots)) or None


def _slot_messages(missing_slots: list[str], unknown_slots: list[str]) -> Iterator[str]:
    if missing_slots:
        yield f"missing: {', '.join(map(repr, missing_slots))}"
    if unknown_slots:
        yield f"not declared: {', '.join(map(repr, unknown_slots))}"


def worker_card_from_json(encoded: Any) -> WorkerCard:
    """Parse the result of `WorkerCard.to_json`.

    Raises:
        ValueError: the card is invalid.
    """
    return WorkerCard.model_validate(encoded)


class Effects(StrEnum):
    """Effects of a call on external state. They decide how the call is run (docs/guides/tools.md)."""

    PURE = "pure"
    READ = "read"
    IDEMPOTENT = "idempotent"
    WRITE = "write"

    @property
    def changes_nothing(self) -> bool:
        """Whether calls leave external state as it is."""
        return self in (Effects.PURE, Effects.READ)


@dataclass(frozen=True, slots=True)
class ToolDeclaration:
    """Description of a tool for plans.

    Args:
        name: the Temporal activity type.
        effects: effects of a call on external state; an undeclared tool counts as `write`.
        input_schema: JSON Schema (2020-12) of the arguments object; `None` accepts any arguments.
        output_schema: JSON Schema of the result, from the function's annotation; `None` if it is not known.
        plain_parameters: parameters without custom validators, which accept exactly the values of their schema.
        task_queue: the queue whose workers serve the tool; `None` is the queue of the workflow.
        timeout_s: time limit of one attempt in seconds; 0 if no timeout is declared. Then a pure tool has 1 s in a
            region and 60 s otherwise, and a worker tool has `worker_timeout_s` in rounds and 60 s otherwise.
        max_parallel: concurrent calls of the tool in one run; `None` is unlimited.
        max_attempts: attempts including the first; 1 for `write` unless declared.
        version: short text that changes when the tool's code changes.
        is_pinned: each call carries the tool version with which the plan was checked, and is rejected if the version
            has changed. Set for tools whose implementation changes independently of Dagwright.
        is_foreign: the activity is served by a worker of another program, so all values must be inline.
        workflow: type of the workflow that each call starts as a child of the run, instead of an activity; such a tool
            has `is_foreign` too. `None` for every other tool.
        batch: short calls may share an activity; only for `read` and `idempotent`.
        uses_models: whether the tool calls models by itself. In a run with a budget, such a tool is called only if some
            budget is left.
        effects_by: how the effects of a call depend on an argument, `{"argument": name, "default": value, "effects":
            {value: effects}}`; a value that is not listed, or not known before the call, has the effects of the tool.
            Nodes may declare such a call `idempotent`. `None` if all calls have the same effects.
        secrets: names of the secrets that the tool accepts in its arguments; empty for none, `None` if the settings of
            the worker decide.
        sends_to_hosts: whether the settings of the worker bind secrets to the hosts of the tool's calls.
        undo: name of the tool that compensates for a call; its arguments are `{"key": idempotency key of the call,
            "arguments": its arguments, "result": its result, or null if its outcome is unknown}`.
        sets: name in a session, without `@`, that is set to the identity of a call's result.
        returns: type of the result's identity: an entity type such as `fund`, or another type, such as `role`; `None`
            if it is not declared. See `argument_checks`.
        resolver: the resolver, as JSON, if the tool is the `find` of a resolver. See `resolvers`.
        description: one paragraph for people and models.
        agent: the card of the agent, if the tool is an agent.
        worker: slots that the tool requires and fills, if it is a worker tool.
        aliases: former names of the tool, for hints; new plans use `name`.
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
    batch: bool = False
    uses_models: bool = False
    effects_by: Mapping[str, Any] | None = None
    secrets: Sequence[str] | None = None
    sends_to_hosts: bool = False
    undo: str | None = None
    sets: str | None = None
    returns: str | None = None
    resolver: Mapping[str, Any] | None = None
    description: str = ""
    agent: "AgentCard | None" = None
    worker: WorkerCard | None = None
    output_schema: Mapping[str, Any] | None = None
    plain_parameters: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()

    @property
    def never_takes_secrets(self) -> bool:
        """Whether no setting can allow secrets for the tool: it declares that it accepts none, or it is `pure`."""
        return self.effects is Effects.PURE or (self.secrets is not None and not self.secrets)


_EFFECTS: Mapping[str, Effects] = {effects.value: effects for effects in Effects}

ENCODED_FIELDS: Mapping[str, type] = {
    "task_queue": str, "max_parallel": int, "max_attempts": int, "version": str, "is_pinned": bool, "is_foreign": bool,
    "workflow": str, "batch": bool,
    "uses_models": bool, "effects_by": dict, "undo": str, "sets": str, "resolver": dict,
}  # fmt: skip
"""Fields that all JSON forms of a declaration have in common, in addition to `effects`: field -> JSON type."""


def effects_of_call(
    tool: ToolDeclaration, arguments: Mapping[str, Any], *, unknown_paths: Iterable[Sequence[Any]] = ()
) -> Effects:
    """Return the effects of a call; the effects of the tool if the deciding argument is unknown.

    Args:
        unknown_paths: paths into the arguments whose values are not known yet.
    """
    rule = tool.effects_by
    if rule is None:
        return tool.effects
    name = rule.get("argument")
    if any(not path or path[0] == name for path in unknown_paths):
        return tool.effects
    value, effects_by_value = arguments.get(str(name), rule.get("default")), rule.get("effects")
    effects = effects_by_value.get(value) if isinstance(effects_by_value, Mapping) and isinstance(value, str) else None
    return _EFFECTS.get(effects, tool.effects) if isinstance(effects, str) else tool.effects


def problem_of_effects_rule(rule: Any) -> str | None:
    """Return the problem of a `ToolDeclaration.effects_by`; `None` if it is valid."""
    keys = {"argument", "default", "effects"}
    if not isinstance(rule, Mapping) or not {*rule} <= keys or not isinstance(rule.get("argument"), str):
        return "expected an object with argument, default and effects"
    effects = rule.get("effects")
    if not isinstance(effects, Mapping) or not all(
        isinstance(effect, str) and effect in _EFFECTS for effect in effects.values()
    ):
        return f"effects: expected an object of values, each with one of {', '.join(Effects)}"
    return None


def with_compensating_tools(names: Iterable[str], tools: Mapping[str, ToolDeclaration]) -> list[str]:
    """Return the names of tools, followed by the tools that compensate for them, each once."""
    tool_names = list(dict.fromkeys(names))
    undo_names = (tools[name].undo for name in tool_names if name in tools)
    return list(dict.fromkeys([*tool_names, *(name for name in undo_names if name is not None)]))


def parameter_name(key: str, properties: Mapping[str, Any]) -> str:
    """Return the declared name of the parameter that `key` means in a plan (`order-id` -> `order_id`)."""
    if key in properties:
        return key
    name = key.replace("-", "_")
    return name if name in properties else key


MODEL_TOOL = "call_model"
"""Name of the tool that calls a model."""
PLAN_READER = "read_model_plan"
"""Name of the tool that reads a plan written by a model. The tool itself calls no model."""
PURPOSE_ANSWER = "answer"
"""Purpose of a call that writes the answer from the existing results; a run that finishes early makes this call even if
the budget is used up."""
AGENT_PREFIX = "agent."
"""Prefix of the tool name of an agent; the name of the agent follows."""
AGENT_KIND, GOAL_KIND, ROUNDS_KIND = "agent", "goal", "rounds"
"""Kinds of strategies that extend a plan: the loop of an agent, a request in natural language, or a question that is
answered in rounds of worker tools."""

INLINE_SUFFIX = " (inline)"
"""Suffix of the name of an inline agent; no card can have such a name."""


def is_inline_agent(agent: str) -> bool:
    """Return whether the agent of this name is defined in a plan itself."""
    return agent.endswith(INLINE_SUFFIX)
