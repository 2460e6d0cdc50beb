"""Compiled plan: the input of the workflow. It is checked and numbered, and its references are parsed.

A plan is compiled outside of the workflow, because parsing and checking a large plan in the workflow would take longer
than the 2 s after which Temporal reports a deadlock. The JSON form is part of the workflow's input.

Replay: fields may be added with a default; the meaning of a field never changes.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from itertools import compress
from operator import attrgetter, is_not
from typing import Any, Literal, get_args

from dagwright.core.expressions.references import Index, Item, Placeholder, Reference, ResultOf, Template
from dagwright.core.expressions.stored_values import BindingPath, Projection, Secret, path_from_json, path_to_json
from dagwright.core.model.tools import (
    AGENT_KIND,
    AGENT_PREFIX,
    ENCODED_FIELDS,
    GOAL_KIND,
    ROUNDS_KIND,
    Effects,
    ToolDeclaration,
    is_inline_agent,
    worker_card_from_json,
)

Binding = tuple[BindingPath, Template]
"""Path into the arguments at which a value is filled in, and the parsed template of the value."""

NodeKind = Literal["tool", "plan", "human", "region", "external", "lookup"]
HIDDEN_KINDS = ("region", "lookup")
"""Kinds of nodes that the compiler adds; they are never shown."""

Approval = Literal["policy", "required", "never"] | Mapping[str, Any]
"""Whether a person must approve the node before it runs; an object is the question."""

DEFAULT_TIMEOUT_S = 60.0
"""Timeout of one attempt as an activity, if the plan has none."""

REGION_TIMEOUT_S = 1.0
"""Timeout of one attempt inside a region, if the plan has none."""

SCHEMA_CHARACTERS = 16 * 1024
"""Longest schema of a tool in a compiled plan."""
ALL_SCHEMAS_CHARACTERS = 64 * 1024
"""Maximum size of all schemas in one compiled plan, because the plan is part of the input of each run."""

Join = tuple[Literal["all", "any", "all_done", "at_least"], int]
"""The kind of a join, and how many dependencies must be done (0 if the kind alone decides)."""

_DEFAULT_DIALECT = "plan"

CHANGING_EFFECTS = (Effects.IDEMPOTENT, Effects.WRITE)


@dataclass(frozen=True, slots=True)
class RetryRule:
    """When a failed attempt is retried; delays in seconds."""

    max_attempts: int = 3
    first_delay_s: float = 1.0
    factor: float = 2.0
    max_delay_s: float | None = None


@lru_cache(maxsize=256)
def default_retry(effects: Effects, max_attempts: int | None) -> RetryRule:
    """Return the retry rule of a tool for nodes without a rule. Equal rules share one object.

    Args:
        max_attempts: maximum that the tool declares; by default `write` tools have one attempt.
    """
    attempts = max_attempts or (1 if effects is Effects.WRITE else RetryRule().max_attempts)
    return RetryRule() if attempts == RetryRule().max_attempts else RetryRule(max_attempts=attempts)


@dataclass(slots=True)
class CompiledNode:
    """One node, ready to run; treated as immutable. Its number is its position in the plan.

    It is not frozen, because creating a frozen dataclass takes three times as long, and large plans have 100,000 nodes.

    Args:
        id: as written, in NFC.
        kind: `tool` calls a tool; `plan` is a child run; `human` asks a person, with the question in `arguments`;
            `region` is one activity for all its members; `lookup` is a tool call that finds an entity. `external` is a
            node that another plan runs and reports: in the plan of a run, a member of a region; in the plan of a
            region batch, a dependency outside the region.
        tool: name of the tool; empty for a sub-plan; for a region, the tool of one member.
        arguments: JSON object with null at every binding.
        bindings: texts with references inside `arguments`.
        dependencies: numbers of the nodes it waits for, distinct, in declared order.
        when: CEL expression; the nodes that it reads are among the dependencies.
        for_each: a literal list, or a template whose value is the list; `None` runs the node once.
        first_index: index of the first item, for a batch of a large map.
        item_bindings: texts with references inside of a literal list, which has null at these places.
        timeout_s: seconds of one attempt; 0 for the default, which is `REGION_TIMEOUT_S` inside a region and
            `DEFAULT_TIMEOUT_S` otherwise. For a sub-plan, seconds of the whole run; 0 for no limit.
        on_error: effect of a failure on the dependents. With `value`, the field `value` becomes the result. With
            `replan`, the dependents are blocked until the planner of the run has written the replacement.
        members: for a region, the numbers of its nodes in an order in which they can run; for an offloaded region,
            only the nodes whose results are needed outside the region.
        inner: for an offloaded region, reference of its nodes in the payload store; see
            `dagwright.core.compiler.offloaded_regions`.
        inner_count: number of nodes of an offloaded region.
        reads: for an offloaded region, numbers of the outside nodes whose results the region reads.
    """

    id: str
    kind: NodeKind = "tool"
    title: str | None = None
    tool: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    bindings: Sequence[Binding] = ()
    dependencies: Sequence[int] = ()
    join: Join = ("all", 0)
    when: str | None = None
    for_each: Template | list[Any] | None = None
    item_bindings: Sequence[Binding] = ()
    key: Template | None = None
    first_index: int = 0
    max_parallel: int | None = None
    on_error: Literal["block", "skip", "value", "ask", "replan"] = "block"
    value: Any = None
    retry: RetryRule = RetryRule()
    timeout_s: float = 60.0
    heartbeat_s: float | None = None
    priority: int = 3
    is_worker: bool = False
    """Whether the tool is a worker tool: it has a worker card, or the plan is written in the dialect `subgoals`. The
    result of a worker tool is a `WorkerResult`."""
    sub_plan: "CompiledPlan | None" = None
    members: Sequence[int] = ()
    inner: str | None = None
    inner_count: int = 0
    reads: Sequence[int] = ()
    cache_s: float | None = None
    """Seconds for which the result of an equal call may be reused; 0 for never; with `None` the effects decide."""
    projections: Sequence[Projection] = ()
    """Projections that the plan needs of a large result; with `for_each`, of each item's result."""
    approval: Approval = "policy"
    """Whether a person must approve the call before it runs; a question has null at every binding."""
    approval_bindings: Sequence[Binding] = ()
    supersedes: str | None = None
    """Id of the node that this node replaces."""
    effects: str | None = None
    """Effects of the node's calls, if they differ from the effects of the tool; see `tool_of`."""
    compensates: str | None = None
    """Id of the node or item for which this node compensates; the compensated call provides the arguments."""

    @property
    def activity_timeout_s(self) -> float:
        """Seconds of one attempt as a separate activity."""
        return self.timeout_s or DEFAULT_TIMEOUT_S


@dataclass(frozen=True, slots=True)
class CompiledPlan:
    """A plan, ready to run.

    Args:
        nodes: nodes in plan order, followed by the nodes that the compiler added: first the lookups, then the regions.
        tools: declarations of the tools that the nodes use.
        inputs: names of the inputs -> their JSON Schema, prompt and default.
        output: JSON with null at every binding; `None` with no bindings means that the plan has no output.
        extender: strategy that adds nodes while the run is active, `{"kind": …}`, as `planning.extender_specs` reads
            it; `None` for a complete plan.
    """

    nodes: Sequence[CompiledNode]
    tools: Mapping[str, ToolDeclaration] = field(default_factory=dict)
    title: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    on_failure: Literal["continue", "fail_fast"] = "continue"
    deadline_s: float | None = None
    output: Any = None
    output_bindings: Sequence[Binding] = ()
    dialect: str = _DEFAULT_DIALECT
    extender: Mapping[str, Any] | None = None

    @property
    def has_planner(self) -> bool:
        """Whether a model writes the plan of the run, so that it can write a new plan after a failure."""
        return self.extender is not None and self.extender.get("kind") == GOAL_KIND

    @property
    def has_rounds(self) -> bool:
        """Whether the run answers a question in rounds."""
        return self.extender is not None and self.extender.get("kind") == ROUNDS_KIND

    @property
    def is_non_interactive(self) -> bool:
        """Whether the run never waits for a person: requests are rejected, and the run uses the data it has."""
        return self.has_rounds

    @property
    def visible_count(self) -> int:
        """Number of visible nodes; the nodes after them, lookups and regions, are never shown."""
        return self._count_before(HIDDEN_KINDS)

    @property
    def count_without_regions(self) -> int:
        """Number of nodes without the regions: the visible nodes and the lookups."""
        return self._count_before(("region",))

    def _count_before(self, kinds: Collection[str]) -> int:
        count = len(self.nodes)
        while count and self.nodes[count - 1].kind in kinds:
            count -= 1
        return count


def tool_of(node: CompiledNode, tools: Mapping[str, ToolDeclaration]) -> ToolDeclaration:
    """Return the declaration of a node's tool, with the effects of the node; an undeclared tool counts as `write`."""
    tool = tools.get(node.tool) or ToolDeclaration(node.tool)
    return tool if node.effects is None else replace(tool, effects=Effects(node.effects))


def has_side_effects(node: CompiledNode, tools: Mapping[str, ToolDeclaration]) -> bool:
    """Return whether a node calls a tool that changes external state; an undeclared tool counts as such a tool."""
    if node.kind not in ("tool", "external"):
        return False
    return tool_of(node, tools).effects in CHANGING_EFFECTS


def agent_of(node: CompiledNode) -> str | None:
    """Return the name of the agent that executes a node; `None` if it has no agent."""
    if node.tool.startswith(AGENT_PREFIX):
        return node.tool.removeprefix(AGENT_PREFIX)
    extender = node.sub_plan.extender if node.sub_plan is not None else None
    name = extender.get("name") if extender is not None and extender.get("kind") == AGENT_KIND else None
    return name if isinstance(name, str) else None


def agent_tools(node: CompiledNode) -> Mapping[str, Effects] | None:
    """Return the tools that the agent of a node may call -> their effects; `None` if no model executes the node."""
    extender = node.sub_plan.extender if node.sub_plan is not None and node.kind == "plan" else None
    if extender is None or agent_of(node) is None:
        return None
    tools = (tool for tool in extender.get("tools", ()) if isinstance(tool, Mapping))
    return {str(tool.get("name")): Effects(tool.get("effects", Effects.WRITE)) for tool in tools}


def inline_tools(node: CompiledNode) -> Sequence[str] | None:
    """Return the tools that the inline agent of a node may call; `None` if the node has no inline agent."""
    name, tools = agent_of(node), agent_tools(node)
    return [*tools] if tools is not None and name is not None and is_inline_agent(name) else None


def path_of_first_model_node(plan: CompiledPlan) -> str | None:
    """Return the path of the first node that a model executes, such as `archive/check`.

    Agents of type `class` or `service` are ignored, because their use of models is unknown.
    """
    for node in plan.nodes:
        if agent_tools(node) is not None:
            return node.id
        inner_path = path_of_first_model_node(node.sub_plan) if node.sub_plan is not None else None
        if inner_path is not None:
            return f"{node.id}/{inner_path}"
    return None


NODE_KINDS = get_args(NodeKind)
_DEFAULT_NODE = CompiledNode(id="")
OUTPUT_BINDINGS_KEY = "output_bindings"
BINDINGS_KEY = "bindings"
_BINDING_FIELDS = frozenset({BINDINGS_KEY, "item_bindings", "approval_bindings"})
CONVERTED_FIELDS = frozenset(
    {
        *_BINDING_FIELDS,
        "for_each",
        "key",
        "retry",
        "sub_plan",
        "dependencies",
        "join",
        "members",
        "reads",
        "projections",
    }
)
"""Fields that need a conversion to JSON."""
_FIELDS = tuple(node_field.name for node_field in fields(CompiledNode))
_get_field_values = attrgetter(*_FIELDS)
NODE_DEFAULTS: Mapping[str, Any] = {name: getattr(_DEFAULT_NODE, name) for name in _FIELDS}
"""Field of a node -> its default, in the order of the fields."""
_DEFAULTS = tuple(NODE_DEFAULTS.values())


def plan_to_json(plan: CompiledPlan) -> dict[str, Any]:
    """Return the JSON form of a compiled plan, without default values."""
    encoded: dict[str, Any] = {"format": 1, "nodes": [node_to_json(node) for node in plan.nodes]}
    for name in ("title", "metadata", "inputs", "deadline_s", "output"):
        if getattr(plan, name) not in (None, {}, ()):
            encoded[name] = getattr(plan, name)
    if plan.dialect != _DEFAULT_DIALECT:
        encoded["dialect"] = plan.dialect
    if plan.extender is not None:
        encoded["extender"] = plan.extender
    if plan.on_failure != "continue":
        encoded["on_failure"] = plan.on_failure
    if plan.output_bindings:
        encoded[OUTPUT_BINDINGS_KEY] = _bindings_to_json(plan.output_bindings)
    encoded["tools"] = _tools_to_json(plan.tools)
    return encoded


def _tools_to_json(tools: Mapping[str, ToolDeclaration]) -> dict[str, Any]:
    encoded = {name: tool_to_json(tool) for name, tool in tools.items()}
    remaining_characters = ALL_SCHEMAS_CHARACTERS
    for tool in encoded.values():
        if "input_schema" in tool:
            remaining_characters -= len(json.dumps(tool["input_schema"]))
            if remaining_characters < 0:
                del tool["input_schema"]
    return encoded


def copy_with_kind(node: CompiledNode, kind: NodeKind) -> CompiledNode:
    """Return a copy of a node with another kind, faster than `replace` for plans with many nodes."""
    copy = CompiledNode(*_get_field_values(node))
    copy.kind = kind
    return copy


def plan_from_json(encoded: Mapping[str, Any]) -> CompiledPlan:
    """Parse the JSON form of a compiled plan.

    Raises:
        ValueError: the format is newer, or the object is not a result of `plan_to_json`.
    """
    if not isinstance(encoded, Mapping):
        raise ValueError("a compiled plan must be an object")
    if encoded.get("format") != 1:
        raise ValueError(f"compiled plan of format {encoded.get('format')!r}; this program reads format 1")
    try:
        return CompiledPlan(
            nodes=tuple(node_from_json(node) for node in encoded["nodes"]),
            tools={name: tool_from_json(name, tool) for name, tool in encoded.get("tools", {}).items()},
            title=encoded.get("title"),
            metadata=encoded.get("metadata", {}),
            inputs=encoded.get("inputs", {}),
            on_failure=encoded.get("on_failure", "continue"),
            deadline_s=encoded.get("deadline_s"),
            output=encoded.get("output"),
            output_bindings=_bindings_from_json(encoded.get(OUTPUT_BINDINGS_KEY, ())),
            dialect=encoded.get("dialect", _DEFAULT_DIALECT),
            extender=encoded.get("extender"),
        )
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"not a compiled plan: {error!r}") from None


def node_to_json(node: CompiledNode) -> dict[str, Any]:
    """Return the JSON form of one node, without default values."""
    encoded: dict[str, Any] = {}
    values = _get_field_values(node)
    # Most fields of a node are identical to the objects of `_DEFAULTS`.
    for name, value, default in compress(zip(_FIELDS, values, _DEFAULTS, strict=True), map(is_not, values, _DEFAULTS)):
        if value != default or type(value) is not type(default):
            encoded[name] = field_to_json(name, value) if name in CONVERTED_FIELDS else value
    if has_only_bound_arguments(node):
        encoded.pop("arguments", None)
    return encoded


def has_only_bound_arguments(node: CompiledNode) -> bool:
    """Return whether each argument of a node is one binding, so that its JSON form needs no `arguments`."""
    arguments, bindings = node.arguments, node.bindings
    return 0 < len(bindings) == len(arguments) and all(
        value is None and path == (name,) for (name, value), (path, _) in zip(arguments.items(), bindings, strict=True)
    )


def restore_arguments(node: CompiledNode) -> None:
    """Restore the arguments of a node whose JSON form has none; see `has_only_bound_arguments`."""
    if node.bindings and not node.arguments:
        node.arguments = {str(path[0]): None for path, _ in node.bindings}


def field_to_json(name: str, value: Any) -> Any:
    """Return the JSON form of a field.

    Args:
        name: name of the field, in `CONVERTED_FIELDS`.
    """
    if name in _BINDING_FIELDS:
        return _bindings_to_json(value)
    if name in ("for_each", "key") and isinstance(value, tuple):
        return {"template": _template_to_json(value)}
    if name == "retry":
        return {rule_field.name: getattr(value, rule_field.name) for rule_field in fields(RetryRule)}
    if name == "sub_plan":
        return plan_to_json(value)
    if name == "projections":
        return projections_to_json(value)
    return list(value) if isinstance(value, tuple) else value


def node_from_json(encoded: Mapping[str, Any]) -> CompiledNode:
    """Parse the JSON form of a node.

    Raises:
        ValueError, KeyError, TypeError, AttributeError, IndexError: the form is invalid.
    """
    if not isinstance(encoded["id"], str) or encoded.get("kind", "tool") not in NODE_KINDS:
        raise ValueError(f"{encoded['id']!r} is not a node of a compiled plan")
    values: dict[str, Any] = {}
    for key, value in encoded.items():
        if key in CONVERTED_FIELDS:
            values[key] = field_from_json(key, value)
        elif key in NODE_DEFAULTS:
            values[key] = value
    node = CompiledNode(**values)
    restore_arguments(node)
    return node


def field_from_json(name: str, value: Any) -> Any:
    """Parse the result of `field_to_json`."""
    if name == "dependencies":
        return tuple(value)
    if name in _BINDING_FIELDS:
        return _bindings_from_json(value)
    if name in ("for_each", "key"):
        return _template_from_json(value["template"]) if isinstance(value, Mapping) else value
    if name == "retry":
        return RetryRule(**value)
    if name == "projections":
        return projections_from_json(value)
    return plan_from_json(value) if name == "sub_plan" else tuple(value)


def projections_to_json(projections: Sequence[Projection]) -> list[Any]:
    """Return projections as JSON."""
    return [[path_to_json(path), use] for path, use in projections]


def projections_from_json(encoded: Any) -> tuple[Projection, ...]:
    """Parse projections.

    Raises:
        ValueError: the form is invalid.
    """
    return tuple((path_from_json(path), "whole" if use == "whole" else "value") for path, use in encoded)


def tool_to_json(tool: ToolDeclaration) -> dict[str, Any]:
    """Return the JSON form of a declaration, without the fields that only the check of the plan needs.

    The JSON form includes the schema of a tool that may need approval, because people may change the arguments.
    """
    encoded: dict[str, Any] = {"effects": tool.effects.value}
    for name in ENCODED_FIELDS:
        if getattr(tool, name):
            encoded[name] = getattr(tool, name)
    if tool.timeout_s != DEFAULT_TIMEOUT_S:
        encoded["timeout_s"] = tool.timeout_s
    schema = tool.input_schema
    if schema and tool.effects is not Effects.PURE and len(json.dumps(schema)) <= SCHEMA_CHARACTERS:
        encoded["input_schema"] = schema
    if tool.worker is not None:
        encoded["worker"] = tool.worker.to_json()
    return encoded


def tool_from_json(name: str, encoded: Mapping[str, Any]) -> ToolDeclaration:
    """Parse the JSON form of a declaration."""
    return ToolDeclaration(
        name=name,
        effects=Effects(encoded["effects"]),
        input_schema=encoded.get("input_schema"),
        timeout_s=encoded.get("timeout_s", DEFAULT_TIMEOUT_S),
        worker=worker_card_from_json(encoded["worker"]) if "worker" in encoded else None,
        **{field: encoded[field] for field in ENCODED_FIELDS if field in encoded},
    )


def _bindings_to_json(bindings: Sequence[Binding]) -> list[Any] | dict[str, Any]:
    """Return `{key: template}` if each path is a single key, otherwise `[[path, template], …]`."""
    encoded = [[list(path), _template_to_json(template)] for path, template in bindings]
    templates_by_key = {path[0]: template for path, template in encoded if len(path) == 1 and isinstance(path[0], str)}
    return templates_by_key if len(templates_by_key) == len(encoded) else encoded


def _bindings_from_json(encoded: Sequence[Any] | Mapping[str, Any]) -> tuple[Binding, ...]:
    if isinstance(encoded, Mapping):
        return tuple([((key,), _template_from_json(template)) for key, template in encoded.items()])
    return tuple([(tuple(path), _template_from_json(template)) for path, template in encoded])


def _template_to_json(template: Template) -> str | list[Any]:
    """Return the parts of a template; if the template is just the result of a node, return the ID of the node."""
    part = template[0] if len(template) == 1 else None
    if isinstance(part, ResultOf) and part.field == "result" and not part.path:
        return part.node_id
    return [part if isinstance(part, str) else _reference_to_json(part) for part in template]


def _template_from_json(encoded: str | Sequence[Any]) -> Template:
    if isinstance(encoded, str):
        return (ResultOf(encoded, "result"),)
    return tuple([part if isinstance(part, str) else _reference_from_json(part) for part in encoded])


def _reference_to_json(reference: Reference) -> dict[str, Any]:
    if isinstance(reference, ResultOf):
        path = reference.path
        encoded: dict[str, Any] = {"node": reference.node_id}
        if reference.field != "result":
            encoded["field"] = reference.field
        if path:
            encoded["path"] = path if isinstance(path, str) else list(path)
        return encoded
    match reference:
        case Placeholder(name):
            return {"placeholder": name}
        case Item(path):
            return {"item": path if isinstance(path, str) else list(path)}
        case Index():
            return {"index": True}
        case Secret(name):
            return {"secret": name}


def _reference_from_json(encoded: Mapping[str, Any]) -> Reference:
    # This case is not part of the slower `match`, because large plans have a hundred thousand of these references.
    if "node" in encoded:
        return ResultOf(encoded["node"], encoded.get("field", "result"), _path_of(encoded.get("path", ())))
    match encoded:
        case {"placeholder": name}:
            return Placeholder(name)
        case {"item": path}:
            return Item(_path_of(path))
        case {"index": _}:
            return Index()
        case {"secret": name}:
            return Secret(name)
    raise ValueError(f"{encoded!r} is not a reference")


def _path_of(encoded: Any) -> Any:
    return encoded if isinstance(encoded, str) else tuple(encoded)
