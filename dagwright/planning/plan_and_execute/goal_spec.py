"""Wire form of a goal (a request in natural language) and of the nodes of the plan that a model writes for it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from dagwright.core.boundary.wire import ACTIVITY_READ_MODEL_PLAN
from dagwright.core.model.agents import DECLARATION_ADAPTER
from dagwright.core.model.compiled import (
    CompiledNode,
    node_from_json,
    node_to_json,
    tool_from_json,
    tool_of,
    tool_to_json,
)
from dagwright.core.model.tools import GOAL_KIND, Effects, ToolDeclaration
from dagwright.planning.model_calls.model_requests import ModelConfig, model_config_from_json
from dagwright.planning.plan_and_execute.replan_context import EXISTING_NODE

PLAN, READ, APPROVE, ANSWER = "plan", "read", "approve", "answer"
"""IDs of the nodes that the run itself adds; later nodes of the same kind have the suffix `#` and a number."""
RESERVED_IDS = frozenset({PLAN, READ, APPROVE, ANSWER})
PLAN_INVALID = "plan_invalid"
"""Error code of a run whose model wrote no plan that can run."""
LOW_CONFIDENCE = "low_confidence"
"""Error code of a non-interactive run whose model reported too little confidence in its plan."""
REPAIR, REPLAN = "repair", "replan"
"""Purposes of planning calls. `repair`: the model receives the problems of its plan. `replan`: the model receives the
results of the nodes. For other model calls, the purpose is the node ID."""
DEFAULT_MAX_PLANS = 4
"""Default limit for plans per planning round (the first planning or a replan), including repaired plans."""
PLANS_LIMIT = 20
"""Largest number of plans per planning round that can be set for a goal."""
DEFAULT_MAX_REPLANS = 3
"""Default limit for replans after a plan has run."""
REPLANS_LIMIT = 20
"""Largest number of replans that can be set for a goal."""

Profile = Literal["plan", "intents"]
"""Planning profile: a plan followed by an answer, or intents: calls of verbs with entities that are looked up."""
PROFILES: Sequence[Profile] = get_args(Profile)
MAX_CONTEXT_NAMES = 100
"""Maximum number of context names of a goal."""

READ_MODEL_PLAN = ToolDeclaration(
    ACTIVITY_READ_MODEL_PLAN,
    Effects.READ,
    # The arguments have a schema because a person may submit a different plan instead of approving the plan.
    input_schema={
        "type": "object",
        "properties": {
            "plan": {},
            "text": {"type": ["string", "null"]},
            "tools": {"type": "array"},
            "accepted_nodes": {"type": "array"},
            "replan_context": {"type": "object"},
            "inline_agents": {"type": "boolean"},
            "profile": {"type": "string"},
            "context": {"type": "object"},
        },
        "required": ["plan"],
        "additionalProperties": False,
    },
)
"""Declaration of the activity that parses and checks a plan."""


def decode_tools(encoded: Any) -> dict[str, ToolDeclaration]:
    """Decode the tools that `dagwright.planner.plan_parser` encoded.

    Raises:
        ValueError: `encoded` is not a list of tool declarations.
    """
    if not isinstance(encoded, list):
        raise ValueError("tools must be a list")
    tools = [DECLARATION_ADAPTER.validate_python(tool) for tool in encoded]
    return {tool.name: tool for tool in tools}


def may_start_early(node: CompiledNode, tools: Mapping[str, ToolDeclaration]) -> bool:
    """Check whether a node may run before its plan is complete: it has no side effects and needs no approval.

    Args:
        tools: the tools that the plan may use.
    """
    is_call = node.kind == "tool" and node.sub_plan is None and node.tool in tools
    is_harmless = is_call and tool_of(node, tools).effects.changes_nothing
    return is_harmless and node.approval == "policy"


def role_of(node_id: str) -> str | None:
    """Return a node ID without its `#` suffix if the result is one of `RESERVED_IDS`; otherwise return `None`."""
    name = node_id.partition("#")[0]
    return name if name in RESERVED_IDS else None


def is_reserved(node_id: str) -> bool:
    """Check whether a node ID belongs to a node that the run itself adds."""
    return role_of(node_id) is not None


_FLAGS = ("approve_plan", "plan_only", "streams", "inline_agents")


@dataclass(frozen=True, slots=True)
class Goal:
    """A request in natural language, with everything needed to plan for it and to answer it.

    The prompts are part of the goal, so a new version of the prompts does not change runs that have started.

    Args:
        request: text of the request.
        tools: the tools that a plan may use, in the encoding of `dagwright.planner.plan_parser`.
        schema: response format of the planner.
        answer_prompt: system message of the call that writes the answer.
        replan_prompt: first instruction to the planner at a replan.
        answer_schema: response format of an answer that can report missing information, used while a replan is
            possible.
        config: model configuration.
        max_plans: maximum number of plans per planning round, including repaired plans.
        max_replans: maximum number of replans after a plan has run.
        approve_plan: whether a person must approve the plan before it runs.
        plan_only: whether the run ends with the plan and does not run it.
        streams: whether nodes without side effects start while the model is still writing the plan.
        inline_agents: whether a plan may define agents.
        profile: with `plan`, the model writes a plan and later an answer from the results; with `intents`, it writes
            intents.
        context: name without `@` -> `{"id", "name", "kind"}` of the named object.
        confidence: minimum confidence, 0 to 1. A plan with a lower confidence needs approval. `None` disables the
            check.
        output_schema: JSON Schema of the answer; empty for text. An answer with a schema cannot report missing
            information.
    """

    request: str
    tools: Sequence[Mapping[str, Any]]
    schema: Mapping[str, Any]
    answer_prompt: str
    replan_prompt: str = ""
    answer_schema: Mapping[str, Any] = field(default_factory=dict)
    config: ModelConfig = field(default_factory=ModelConfig)
    max_plans: int = DEFAULT_MAX_PLANS
    max_replans: int = DEFAULT_MAX_REPLANS
    approve_plan: bool = False
    plan_only: bool = False
    streams: bool = False
    inline_agents: bool = False
    profile: Profile = "plan"
    context: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    confidence: float | None = None
    output_schema: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the goal as the `extender` of a plan."""
        encoded: dict[str, Any] = {
            "kind": GOAL_KIND,
            "goal": self.request,
            "tools": [dict(tool) for tool in self.tools],
            "schema": dict(self.schema),
            "answer_prompt": self.answer_prompt,
            "replan_prompt": self.replan_prompt,
            "answer_schema": dict(self.answer_schema),
            "max_plans": self.max_plans,
            "max_replans": self.max_replans,
        }
        if config := self.config.to_json():
            encoded["config"] = config
        if self.profile != "plan":
            encoded |= {
                "profile": self.profile,
                "context": {name: dict(entity) for name, entity in self.context.items()},
            }
        if self.confidence is not None:
            encoded["confidence"] = self.confidence
        if self.output_schema:
            encoded["output_schema"] = dict(self.output_schema)
        return encoded | {name: True for name in _FLAGS if getattr(self, name)}


def goal_from_json(encoded: Any) -> Goal:
    """Decode a goal from the JSON form of `Goal.to_json`.

    Raises:
        ValueError: the JSON is not a goal.
    """
    try:
        max_plans, tools, schema = encoded.get("max_plans", DEFAULT_MAX_PLANS), encoded["tools"], encoded["schema"]
        if type(max_plans) is not int or not 1 <= max_plans <= PLANS_LIMIT:
            raise ValueError(f"max_plans: expected a number from 1 to {PLANS_LIMIT}, not {max_plans!r:.20}")
        max_replans = encoded.get("max_replans", DEFAULT_MAX_REPLANS)
        if type(max_replans) is not int or not 0 <= max_replans <= REPLANS_LIMIT:
            raise ValueError(f"max_replans: expected a number from 0 to {REPLANS_LIMIT}, not {max_replans!r:.20}")
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
            max_plans,
            max_replans,
            **{name: encoded.get(name) is True for name in _FLAGS},
            profile=profile,
            context=context_from_json(encoded.get("context", {})),
            confidence=confidence_from_json(encoded.get("confidence")),
            output_schema=encoded.get("output_schema", {}),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a goal: {error!r}") from None


_CONTEXT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,79}")
_MAX_CONTEXT_FIELDS = 8
"""Maximum number of fields per context name that are sent to the planner."""
_MAX_CONTEXT_CHARACTERS = 500


def context_from_json(encoded: Any) -> dict[str, dict[str, str]]:
    """Decode the context names. `{"order": "ID"}` is short for `{"order": {"id": "ID"}}`.

    Raises:
        ValueError: the JSON is invalid; the message names the part.
    """
    if not isinstance(encoded, Mapping) or len(encoded) > MAX_CONTEXT_NAMES:
        raise ValueError(f"context: expected an object of at most {MAX_CONTEXT_NAMES} names")
    return {name: _context_fields(name, entity) for name, entity in encoded.items()}


def _context_fields(name: Any, entity: Any) -> dict[str, str]:
    if not isinstance(name, str) or not _CONTEXT_NAME.fullmatch(name) or name.lower().startswith("result"):
        raise ValueError(f"context: {name!r:.80} is not a valid name, such as order for @order")
    fields = {"id": entity} if isinstance(entity, str) else entity
    if not isinstance(fields, Mapping) or not isinstance(fields.get("id"), str) or not fields["id"].strip():
        raise ValueError(f'context: {name!r} needs an id, as text or as {{"id": "…", "name": "…", "kind": "…"}}')
    fields_with_value = [field for field in fields if isinstance(field, str) and fields[field] is not None]
    context = {field: fields[field] for field in fields_with_value[:_MAX_CONTEXT_FIELDS]}
    if any(not isinstance(value, str) or len(value) > _MAX_CONTEXT_CHARACTERS for value in context.values()):
        raise ValueError(
            f"context: id, name and kind of {name!r} are texts of at most {_MAX_CONTEXT_CHARACTERS} characters"
        )
    return context


def confidence_from_json(encoded: Any) -> float | None:
    """Decode the minimum confidence, 0 to 1; `None` if it is not set.

    Raises:
        ValueError: the value is not a number from 0 to 1.
    """
    if encoded is None:
        return None
    if isinstance(encoded, bool) or not isinstance(encoded, int | float) or not 0 <= encoded <= 1:
        raise ValueError(f"confidence: expected a number from 0 to 1, not {encoded!r:.40}")
    return float(encoded)


@dataclass(frozen=True, slots=True)
class PlannedNodes:
    """The nodes of a plan, ready to be added to a run; dependencies are indexes into `nodes`."""

    nodes: Sequence[CompiledNode]
    tools: Mapping[str, ToolDeclaration]

    def to_json(self) -> dict[str, Any]:
        """Return the nodes in their JSON form."""
        return {
            "nodes": [node_to_json(node) for node in self.nodes],
            "tools": {name: tool_to_json(tool) for name, tool in self.tools.items()},
        }


def planned_nodes_from_json(encoded: Mapping[str, Any]) -> PlannedNodes:
    """Decode nodes from the JSON form of `PlannedNodes.to_json`.

    Raises:
        ValueError: the JSON is not a list of nodes with their tools.
    """
    try:
        return PlannedNodes(
            tuple(node_from_json(node) for node in encoded["nodes"]),
            {name: tool_from_json(name, tool) for name, tool in encoded["tools"].items()},
        )
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"not the nodes of a plan: {error!r}") from None


def is_empty(parsed_plan: Mapping[str, Any]) -> bool:
    """Check whether a plan has no new nodes."""
    return all(node.get("tool") == EXISTING_NODE.name for node in parsed_plan["nodes"])


def described_ids_of(parsed_plan: Mapping[str, Any]) -> frozenset[str]:
    """Return the IDs of the nodes of a plan that a request for approval shows completely."""
    return frozenset(parsed_plan.get("described", ()))
