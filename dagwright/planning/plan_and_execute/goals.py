"""What a run knows of a request in words, and of the plan that a model wrote for it, as both travel."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from pydantic import TypeAdapter

from dagwright.core.boundary.wire import ACTIVITY_READ_MODEL_PLAN
from dagwright.core.model.compiled import (
    CompiledNode,
    node_from_json,
    node_to_json,
    tool_from_json,
    tool_of,
    tool_to_json,
)
from dagwright.core.model.tools import GOAL_KIND, Effects, ToolDeclaration
from dagwright.planning.model_calls.calls import ModelConfig, model_config_from_json

PLAN, READ, APPROVE, ANSWER = "plan", "read", "approve", "answer"
"""Ids of the nodes that a run adds by itself; those that follow have `#` and a number behind."""
OWN_IDS = frozenset({PLAN, READ, APPROVE, ANSWER})
PLAN_INVALID = "plan_invalid"
"""Code of the error of a run for which no plan was found that can be run."""
LOW_CONFIDENCE = "low_confidence"
"""Code of the error of a run whose model was not sure enough of its plan, and which asks nobody."""
REPAIR, REPLAN = "repair", "replan"
"""Purposes of the calls of a model that is shown what is wrong with its plan, or what became of it; of the others it is
their id."""
MAX_PLANS = 4
"""Plans that a model may write for one request, the repaired ones among them."""
PLANS_LIMIT = 20
MAX_REPLANS = 3
"""How often it is planned again, once a plan has run."""
REPLANS_LIMIT = 20

Profile = Literal["plan", "intents"]
"""How a request is planned for: as a plan with an answer behind it, or as intents that find or name what there is."""
PROFILES: Sequence[Profile] = get_args(Profile)
CONTEXT_NAMES = 100
"""Names of a session that a request may be given."""

READ_MODEL_PLAN = ToolDeclaration(
    ACTIVITY_READ_MODEL_PLAN,
    Effects.READ,
    # Whoever approves a plan may give another one instead.
    input_schema={
        "type": "object",
        "properties": {
            "plan": {},
            "text": {"type": ["string", "null"]},
            "tools": {"type": "array"},
            "accepted": {"type": "array"},
            "replan_context": {"type": "object"},
            "inline_agents": {"type": "boolean"},
            "profile": {"type": "string"},
            "context": {"type": "object"},
        },
        "required": ["plan"],
        "additionalProperties": False,
    },
)
"""What a run knows of the activity that reads and checks a plan."""
DECLARATION = TypeAdapter(ToolDeclaration)
"""How tools are told to whoever reads a plan."""
HARMLESS = (Effects.PURE, Effects.READ)
"""Effects of the tools that may be called before all of a plan is known."""


def decode_tools(told: Any) -> dict[str, ToolDeclaration]:
    """Returns the tools that `dagwright.planner.plan_parser` told.

    Raises:
        ValueError: they are none.
    """
    if not isinstance(told, list):
        raise ValueError("tools must be a list")
    tools = [DECLARATION.validate_python(tool) for tool in told]
    return {tool.name: tool for tool in tools}


def may_start_early(node: CompiledNode, tools: Mapping[str, ToolDeclaration]) -> bool:
    """Tells whether a node may run before all of its plan is known: it changes nothing, and nobody is asked first.

    Args:
        tools: what the plan may use.
    """
    is_call = node.kind == "tool" and node.sub_plan is None and node.tool in tools
    is_harmless = is_call and tool_of(node, tools).effects in HARMLESS
    return is_harmless and node.approval == "policy"


def own_id(node_id: str) -> str | None:
    """Returns which of `OWN_IDS` a run has given a node, without the number behind; `None` if the node is another."""
    name = node_id.partition("#")[0]
    return name if name in OWN_IDS else None


def is_own(node_id: str) -> bool:
    """Tells whether an id is one of those that a run adds by itself."""
    return own_id(node_id) is not None


_FLAGS = ("approve_plan", "plan_only", "streams", "inline_agents")


@dataclass(frozen=True, slots=True)
class Goal:
    """A request, and all that is needed to plan for it and to answer it.

    The texts that models are told travel along, so that another version of them changes no run that goes on.

    Args:
        words: the request.
        tools: what a plan may use, as `dagwright.planner.plan_parser` tells and reads it.
        schema: response format of the planner.
        answer_prompt: system message of the call that writes the answer.
        replan_prompt: what the planner is told first when it has to plan again.
        answer_schema: response format of an answer that may say what is missing in it, while it can be planned again.
        config: how models are asked.
        plans: how many plans the model may write each time, the repaired ones among them.
        replans: how often it may plan again once a plan has run.
        approve_plan: whether somebody has to approve the plan before it runs.
        plan_only: whether the run ends with the plan and does not run it.
        streams: whether nodes that change nothing start while the model still writes the plan.
        inline_agents: whether a plan may make agents itself.
        profile: what the model writes, and whether there is an answer behind it.
        context: names of the session, without their `@` -> `{"id", "name", "kind"}` of what each stands for.
        confidence: 0 to 1; where the model is less sure of its plan, somebody has to approve it. `None` asks nobody.
        output_schema: JSON Schema of the answer; empty for a text. Such an answer cannot say what is missing in it.
    """

    words: str
    tools: Sequence[Mapping[str, Any]]
    schema: Mapping[str, Any]
    answer_prompt: str
    replan_prompt: str = ""
    answer_schema: Mapping[str, Any] = field(default_factory=dict)
    config: ModelConfig = field(default_factory=ModelConfig)
    plans: int = MAX_PLANS
    replans: int = MAX_REPLANS
    approve_plan: bool = False
    plan_only: bool = False
    streams: bool = False
    inline_agents: bool = False
    profile: Profile = "plan"
    context: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    confidence: float | None = None
    output_schema: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Returns the goal as an extender travels in a plan."""
        encoded: dict[str, Any] = {
            "kind": GOAL_KIND,
            "goal": self.words,
            "tools": [dict(tool) for tool in self.tools],
            "schema": dict(self.schema),
            "answer_prompt": self.answer_prompt,
            "replan_prompt": self.replan_prompt,
            "answer_schema": dict(self.answer_schema),
            "plans": self.plans,
            "replans": self.replans,
        }
        if config := self.config.to_json():
            encoded["config"] = config
        if self.profile != "plan":
            encoded |= {"profile": self.profile, "context": {name: dict(what) for name, what in self.context.items()}}
        if self.confidence is not None:
            encoded["confidence"] = self.confidence
        if self.output_schema:
            encoded["output_schema"] = dict(self.output_schema)
        return encoded | {name: True for name in _FLAGS if getattr(self, name)}


def goal_from_json(encoded: Any) -> Goal:
    """Returns the goal that `Goal.to_json` told.

    Raises:
        ValueError: it is none.
    """
    try:
        plans, tools, schema = encoded.get("plans", MAX_PLANS), encoded["tools"], encoded["schema"]
        if type(plans) is not int or not 1 <= plans <= PLANS_LIMIT:
            raise ValueError(f"plans: a model may write 1 to {PLANS_LIMIT} plans, not {plans!r:.20}")
        replans = encoded.get("replans", MAX_REPLANS)
        if type(replans) is not int or not 0 <= replans <= REPLANS_LIMIT:
            raise ValueError(f"replans: it is planned again 0 to {REPLANS_LIMIT} times, not {replans!r:.20}")
        if not isinstance(tools, list) or not isinstance(schema, Mapping):
            raise ValueError("tools must be a list, and schema an object")
        for name in ("answer_schema", "output_schema"):
            if not isinstance(encoded.get(name, {}), Mapping):
                raise ValueError(f"{name} must be an object")
        if (profile := encoded.get("profile", "plan")) not in PROFILES:
            raise ValueError(f"profile: expected {' or '.join(PROFILES)}, not {profile!r:.40}")
        return Goal(
            str(encoded["goal"]),
            tools,
            schema,
            str(encoded["answer_prompt"]),
            str(encoded.get("replan_prompt", "")),
            encoded.get("answer_schema", {}),
            model_config_from_json(encoded.get("config", {})),
            plans,
            replans,
            **{name: encoded.get(name) is True for name in _FLAGS},
            profile=profile,
            context=context_from_json(encoded.get("context", {})),
            confidence=confidence_from_json(encoded.get("confidence")),
            output_schema=encoded.get("output_schema", {}),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"this is no goal: {error!r}") from None


_CONTEXT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,79}")
_CONTEXT_FIELDS = 8
"""Facts of one name of a session that a planner is told."""
_CONTEXT_CHARACTERS = 500


def context_from_json(encoded: Any) -> dict[str, dict[str, str]]:
    """Returns names of a session with what they stand for; `{"order": "ID"}` is short for `{"order": {"id": "ID"}}`.

    Raises:
        ValueError: it is no such thing; the text says where.
    """
    if not isinstance(encoded, Mapping) or len(encoded) > CONTEXT_NAMES:
        raise ValueError(f"context: expected an object of at most {CONTEXT_NAMES} names")
    return {name: _named(name, what) for name, what in encoded.items()}


def _named(name: Any, what: Any) -> dict[str, str]:
    if not isinstance(name, str) or not _CONTEXT_NAME.fullmatch(name) or name.lower().startswith("result"):
        raise ValueError(f"context: {name!r:.80} cannot be a name of a session, such as order for @order")
    given = {"id": what} if isinstance(what, str) else what
    if not isinstance(given, Mapping) or not isinstance(given.get("id"), str) or not given["id"].strip():
        raise ValueError(f'context: {name!r} needs an id, as text or as {{"id": "…", "name": "…", "kind": "…"}}')
    named = [field for field in given if isinstance(field, str) and given[field] is not None]
    told = {field: given[field] for field in named[:_CONTEXT_FIELDS]}
    if any(not isinstance(value, str) or len(value) > _CONTEXT_CHARACTERS for value in told.values()):
        raise ValueError(
            f"context: id, name and kind of {name!r} are texts of at most {_CONTEXT_CHARACTERS} characters"
        )
    return told


def confidence_from_json(encoded: Any) -> float | None:
    """Returns how sure a model has to be, 0 to 1, or `None` if that is not said.

    Raises:
        ValueError: it is no such number.
    """
    if encoded is None:
        return None
    if isinstance(encoded, bool) or not isinstance(encoded, int | float) or not 0 <= encoded <= 1:
        raise ValueError(f"confidence: expected a number from 0 to 1, not {encoded!r:.40}")
    return float(encoded)


@dataclass(frozen=True, slots=True)
class PlannedNodes:
    """The nodes of a plan, ready to be added to a run; their dependencies count from the first of them."""

    nodes: Sequence[CompiledNode]
    tools: Mapping[str, ToolDeclaration]

    def to_json(self) -> dict[str, Any]:
        """Returns the nodes as they travel."""
        return {
            "nodes": [node_to_json(node) for node in self.nodes],
            "tools": {name: tool_to_json(tool) for name, tool in self.tools.items()},
        }


def planned_nodes_from_json(encoded: Mapping[str, Any]) -> PlannedNodes:
    """Returns the nodes that `PlannedNodes.to_json` told.

    Raises:
        ValueError: they are none.
    """
    try:
        return PlannedNodes(
            tuple(node_from_json(node) for node in encoded["nodes"]),
            {name: tool_from_json(name, tool) for name, tool in encoded["tools"].items()},
        )
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"these are no nodes of a plan: {error!r}") from None
