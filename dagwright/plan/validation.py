"""Checks a document: every problem is found, not the first.

`check_document` answers what is wrong and what the graph is, and is linear in nodes and edges. What cannot run yet is
refused by `compilation`, which makes the compiled plan.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dagwright.plan import graph
from dagwright.plan.agent_cards import InlineAgent, is_inline
from dagwright.plan.agents import agent_cards, agent_declaration, tool_of_agent
from dagwright.plan.arguments import SchemaOfTool
from dagwright.plan.compiled import Hole
from dagwright.plan.document import Document
from dagwright.plan.errors import Note, PlanInvalid, Problem, pointer
from dagwright.plan.field_problems import read_nodes, read_plan_fields
from dagwright.plan.human_fields import problems_of_people
from dagwright.plan.inputs import schema_of, wrong_defaults
from dagwright.plan.lookup_kinds import LookupKinds
from dagwright.plan.lookups import LOOKUP_TOOLS, MOST_LOOKUPS
from dagwright.plan.model import Cache, Node, Plan
from dagwright.plan.model_tools import AGENT_PREFIX
from dagwright.plan.node_references import NodeReferences, read_references
from dagwright.plan.parties import misplaced_parties
from dagwright.plan.references import (
    BadReferences,
    Lookup,
    Placeholder,
    Reference,
    ResultOf,
    parse_template,
    suggestion,
    walk_texts,
)
from dagwright.plan.tools import Effects, ToolDeclaration
from dagwright.plan.workers import Worker, problems_of_worker

MAX_DEPTH = 8
"""Sub-plans inside of sub-plans; deeper is a mistake and would end in the stack."""

MOST_COMPARED_NAMES = 50_000
"""Names that are compared with wrong ones in one check; about half a second."""

_KINDS = ("tool", "agent", "human", "plan")
_NEEDS = (("key", "for_each"), ("max_parallel", "for_each"), ("objective", "agent"))
"""Fields that mean something only beside another one."""


def _is_name(text: str) -> bool:
    return 0 < len(text.encode(errors="replace")) <= 200


@dataclass(frozen=True, slots=True)
class Checked:
    """A valid plan and what is known of it before it runs.

    Args:
        plan: all fields but the nodes.
        nodes: in plan order.
        references: of each node, in plan order.
        dependencies: node number -> numbers of the nodes it waits for, distinct, in declared order.
        level_of: node number -> its level, the length of the longest path from a root.
        output_holes: texts with references in the plan's `output`.
        inputs: name -> JSON Schema with prompt and default; declared ones first, then as they are found.
        sub_plans: node number -> its checked sub-plan.
        workers: numbers of the nodes whose tool is a worker; needs a fast `in`.
    """

    plan: Plan
    dialect: str
    nodes: Sequence[Node]
    references: Sequence[NodeReferences]
    dependencies: Sequence[Sequence[int]]
    level_of: Sequence[int]
    output_holes: Sequence[Hole]
    inputs: Mapping[str, Mapping[str, Any]]
    sub_plans: Mapping[int, "Checked"]
    notes: Sequence[Note]
    document: Document
    base: tuple[str | int, ...] = ()
    tools: Mapping[str, ToolDeclaration] = field(default_factory=dict)
    workers: Collection[int] = frozenset()

    @property
    def edges(self) -> int:
        """Count of distinct pairs of a node and a node it waits for."""
        return sum(map(len, self.dependencies))

    @property
    def levels(self) -> list[list[str]]:
        """Ids by level (longest path from a root), each level in plan order."""
        grouped: list[list[str]] = [[] for _ in range(max(self.level_of, default=-1) + 1)]
        for node, level in zip(self.nodes, self.level_of, strict=True):
            grouped[level].append(node.id)
        return grouped

    @property
    def critical_path(self) -> list[str]:
        """Ids of the longest chain by count of nodes; ties go by plan order."""
        return [self.nodes[number].id for number in graph.critical_path(self.dependencies, self.level_of)]

    @property
    def lookups(self) -> list[Lookup]:
        """Distinct lookups in order of their first mention, those of sub-plans behind its own.

        The run above binds those of a sub-plan with its own: nothing runs before all are bound.
        """
        found = [part for node in self.references for part in node.lookups]
        for sub_plan in self.sub_plans.values():
            found += sub_plan.lookups
        return list(dict.fromkeys(found))


def check_document(
    document: Document,
    *,
    tools: Mapping[str, ToolDeclaration],
    any_tool: bool = False,
    most_compared: int = MOST_COMPARED_NAMES,
) -> Checked:
    """Returns the plan that a document holds.

    Args:
        document: what a dialect made of a document.
        tools: name -> declaration of every tool that is there.
        any_tool: take tools and agents that are not there on trust.
        most_compared: names that are compared with wrong ones, for the sake of hints.

    Raises:
        PlanInvalid: with all problems, in document order, those of the dialect first.
    """
    # Agents that stand in nodes are added as they are found.
    checker = _Checker(document, document, base=(), tools=dict(tools), any_tool=any_tool)
    checker.hints = _Hints(most_compared)
    checked = checker.check()
    problems = [*document.problems, *checker.problems]
    if checked is not None and (count := len(checked.lookups)) > MOST_LOOKUPS:
        message = f"the plan looks up {count:,} parties; at most {MOST_LOOKUPS:,} can be looked up for one run"
        problems.append(Problem("too_large", message, hint="split the plan"))
    if checked is None or problems:
        raise PlanInvalid(problems)
    return checked


class _Hints:
    """Names that are near to wrong ones, as long as a budget lasts: without it many wrong names take quadratic time."""

    def __init__(self, most_compared: int) -> None:
        self._names_left = most_compared

    def near(self, name: str | None, known: Collection[str], *, but: str | None = None) -> str | None:
        if name is None or len(known) > self._names_left:
            return None
        self._names_left -= len(known)
        return suggestion(name, [each for each in known if each != but])


class _Checker:
    """Checks one plan object; sub-plans get checkers of their own."""

    def __init__(
        self,
        document: Document,
        root: Document,
        *,
        base: tuple[str | int, ...],
        tools: dict[str, ToolDeclaration],
        any_tool: bool,
        path: str = "",
    ) -> None:
        """Begins with a plan.

        Args:
            tools: those of all plans, which grow by the agents that stand in nodes.
            path: ids of the nodes that lead to a sub-plan, each with a `/` behind it.
        """
        self.path = path
        self.document = document
        self.root = root
        self.raw = document.plan
        self.base = base
        self.tools = tools
        self.tool_names = [name for name, tool in tools.items() if tool.agent is None]
        self.any_tool = any_tool
        self.problems: list[Problem] = []
        self.hints = _Hints(MOST_COMPARED_NAMES)
        self.schemas: dict[str, SchemaOfTool | None] = {}
        self.sub_plans: dict[int, Checked] = {}
        # Node id -> the tool whose result is its own.
        self.made_by: Mapping[str, ToolDeclaration] = {}
        # The references that the dialect found itself, by node.
        self.extra: dict[int, dict[str, Reference | Lookup]] = {}
        for (number, key), reference in document.holes.items():
            self.extra.setdefault(number, {})[key] = reference

    def tell(
        self, code: str, message: str, at: Sequence[str | int], *, node: str | None, hint: str | None = None
    ) -> None:
        where = self.root.written_pointer(pointer(*self.base, *at))
        self.problems.append(Problem(code, message, where, node, hint))

    def check(self) -> Checked | None:
        plan, plan_problems = read_plan_fields(self.raw)
        raw_nodes = self.raw.get("nodes")
        if not isinstance(raw_nodes, list):
            self.tell(
                "invalid_field",
                "'nodes' must be a list",
                ("nodes",) if "nodes" in self.raw else (),
                node=None,
            )
            return None
        nodes, node_problems = read_nodes(raw_nodes)
        for problem in [*plan_problems, *node_problems]:
            where = self.root.written_pointer(pointer(*self.base) + problem.pointer)
            self.problems.append(Problem(problem.code, problem.message, where, problem.node, problem.hint))
        if not raw_nodes and not self.document.problems:
            self.tell("empty_plan", "the plan has no nodes", ("nodes",), node=None)
        nodes = {index: self._with_agent_inside(index, node) for index, node in nodes.items()}
        self.made_by = {
            node.id: self.tools[node.tool]
            for node in nodes.values()
            if node.tool in self.tools and node.for_each is None
        }
        numbers = self._number_nodes(nodes, raw_nodes if node_problems else ())
        references = self._read_references(nodes, numbers)
        output_holes = self._read_output(plan, numbers)
        dependencies = self._edges(nodes, references, numbers, count=len(raw_nodes))
        level_of = graph.levels_of(dependencies)
        for cycle in graph.cycles_of(dependencies) if level_of is None else ():
            ids = [nodes[number].id for number in (*cycle, cycle[0])]
            message = f"CircularDependencyError: {' → '.join(ids)}"
            self.tell("cycle", message, ("nodes", cycle[0]), node=ids[0], hint="remove one of these dependencies")
        inputs = self._inputs(plan, references, output_holes)
        if len(nodes) < len(raw_nodes):
            return None
        return Checked(
            plan=plan,
            dialect=self.document.dialect,
            nodes=list(nodes.values()),
            references=[references[index] for index in nodes],
            dependencies=dependencies,
            level_of=level_of or [],
            output_holes=output_holes,
            inputs=inputs,
            sub_plans=self.sub_plans,
            notes=self.document.notes,
            document=self.root,
            base=self.base,
            tools=self.tools,
            workers=self.document.workers,
        )

    def _with_agent_inside(self, index: int, node: Node) -> Node:
        """Returns a node that names its agent, which is known from then on if it stands in the node itself."""
        if not isinstance(node.agent, InlineAgent):
            return node
        if "{{" in node.agent.prompt:
            message = "a prompt holds no references: they are read in the objective"
            self.tell("invalid_field", message, ("nodes", index, "agent", "prompt"), node=node.id)
        card = node.agent.card(name := self.path + node.id)
        count = 1
        while AGENT_PREFIX + card.name in self.tools:
            # Ids hold slashes: a node `a/b` and the node `b` of a sub-plan `a` have agents of their own.
            count += 1
            card = node.agent.card(f"{name}#{count}")
        declared = agent_declaration(card)
        self.tools[declared.name] = declared
        return node.model_copy(update={"agent": card.name})

    def _number_nodes(self, nodes: Mapping[int, Node], raw_nodes: Sequence[Any]) -> dict[str, int]:
        numbers: dict[str, int] = {}
        for index, node in nodes.items():
            first = numbers.setdefault(node.id, index)
            if first != index:
                message = f"{node.id!r} is the id of node {first} and of node {index}"
                self.tell("duplicate_id", message, ("nodes", index, "id"), node=node.id)
        for index, raw in enumerate(raw_nodes):
            # What is wrong with a node does not make references to it wrong as well.
            if isinstance(raw, Mapping) and isinstance(raw.get("id"), str):
                numbers.setdefault(raw["id"], index)
        return numbers

    def _read_references(self, nodes: Mapping[int, Node], numbers: Mapping[str, int]) -> dict[int, NodeReferences]:
        kinds = LookupKinds(nodes, self.extra, self.tools, reads_ids=self.document.dialect == "intents")
        for index, key, message, advice in kinds.problems():
            at = ("nodes", index, "arguments", key, "entity_type")
            self.tell("invalid_arguments", message, at, node=nodes[index].id, hint=advice)
        return {index: self._read_node(index, node, numbers, kinds) for index, node in nodes.items()}

    def _read_node(self, index: int, node: Node, numbers: Mapping[str, int], kinds: LookupKinds) -> NodeReferences:
        references = read_references(node, numbers, extra=kinds.parts_of(index, node))
        for problem in references.problems:
            hint = problem.hint or self.hints.near(problem.unknown, numbers, but=node.id)
            message = problem.message + (f"; {hint}" if hint else "")
            self.tell(problem.code, message, ("nodes", index, *problem.at), node=node.id, hint=hint)
        self._check_kind(index, node)
        self._check_questions(index, node, references)
        self._check_join(index, node, references)
        if isinstance(node.cache, Cache):
            self._check_cache(index, node)
        if node.plan is not None:
            self._check_sub_plan(index, node, references)
        elif node.tool is not None:
            self._check_tool(index, node, references)
        elif node.agent_name is not None:
            self._check_agent(index, node)
        return references

    def _check_kind(self, index: int, node: Node) -> None:
        missing = (node.tool is None) + (node.agent_name is None) + (node.human is None) + (node.plan is None)
        if missing != len(_KINDS) - 1:
            kinds = [name for name in _KINDS if getattr(node, name) is not None]
            got = " and ".join(kinds) if kinds else "none of them"
            message = f"a node has exactly one of tool, agent, human and plan; this one has {got}"
            self.tell("invalid_field", message, ("nodes", index), node=node.id)
        for name, needs in _NEEDS:
            if getattr(node, name) is not None and getattr(node, needs) is None:
                self.tell("invalid_field", f"{name!r} needs {needs!r}", ("nodes", index, name), node=node.id)
        for name, value in (("tool", node.tool), ("agent", node.agent_name)):
            # A character has at most four bytes, so short names need not be encoded.
            if value is not None and not 0 < len(value) <= 50 and not _is_name(value) and not is_inline(value):
                message = f"{name} must be a name of 1 to 200 bytes"
                self.tell("invalid_field", message, ("nodes", index, name), node=node.id)

    def _check_questions(self, index: int, node: Node, references: NodeReferences) -> None:
        found = problems_of_people(node, human_holes=references.human_holes, approval_holes=references.approval_holes)
        for at, message, hint in found:
            self.tell("invalid_field", message, ("nodes", index, *at), node=node.id, hint=hint)

    def _check_join(self, index: int, node: Node, references: NodeReferences) -> None:
        if isinstance(node.join, str):
            return
        count = len(dict.fromkeys([*node.depends_on, *references.nodes]))
        if node.join.at_least > count:
            message = f"join: at_least {node.join.at_least} of {count} dependencies can never be done"
            self.tell("invalid_field", message, ("nodes", index, "join"), node=node.id)

    def _check_cache(self, index: int, node: Node) -> None:
        name = node.tool or node.agent_name
        declaration = tool_of_agent(node.agent_name, self.tools) if node.agent_name else self.tools.get(name or "")
        if name is None:
            message = "'cache' needs a tool whose results can be used again"
        elif declaration is not None and declaration.effects not in (Effects.PURE, Effects.READ):
            message = (
                f"results of {name!r} are never used again, because its effects are {declaration.effects.value!r}: "
                "each node that calls it wants its change; only 'pure' and 'read' tools can have a cache"
            )
        elif declaration is not None and declaration.agent is not None:
            message = f"results of agents are never used again, and {name!r} is one"
        elif declaration is not None and declaration.is_foreign:
            message = f"{name!r} runs in a foreign worker, whose results are not kept for other calls"
        else:
            return
        self.tell("invalid_field", message, ("nodes", index, "cache"), node=node.id, hint="leave 'cache' out")

    def _check_tool(self, index: int, node: Node, references: NodeReferences) -> None:
        assert node.tool is not None
        declaration = self.tools.get(node.tool) if node.tool not in LOOKUP_TOOLS else None
        if declaration is None:
            if not self.any_tool:
                message = f"there is no tool {node.tool!r}"
                self.tell(
                    "unknown_tool", message, ("nodes", index, "tool"), node=node.id, hint=self._tool_hint(node.tool)
                )
            return
        if declaration.agent is not None:
            message, hint = f"{node.tool!r} is an agent, and no tool", f"write agent: {declaration.agent.name}"
            self.tell("invalid_field", message, ("nodes", index, "tool"), node=node.id, hint=hint)
            return
        if declaration.is_foreign and references.has_secrets:
            message = f"{node.tool!r} runs in a foreign worker, which cannot be given secrets"
            self.tell("invalid_arguments", message, ("nodes", index, "arguments"), node=node.id)
        if declaration.undo is not None and declaration.undo not in self.tools and not self.any_tool:
            message = f"{node.tool!r} is taken back by the tool {declaration.undo!r}, which is not there"
            hint = self._tool_hint(declaration.undo)
            self.tell("unknown_tool", message, ("nodes", index, "tool"), node=node.id, hint=hint)
        if declaration.worker is not None:
            found = problems_of_worker(
                node,
                Worker(declaration, declaration.worker),
                references.argument_holes,
                made_by=self.made_by,
                is_sub_goal=index in self.document.workers,
            )
            for code, at, message, advice in found:
                self.tell(code, message, ("nodes", index, *at), node=node.id, hint=advice)
        schema = self._schema(declaration, index=index)
        if schema is None:
            return
        has_dashes = self.document.dialect == "intents"
        for path, message, advice in schema.problems_of(
            node.arguments, references.argument_holes, has_dashes=has_dashes
        ):
            at = ("nodes", index, "arguments", *path)
            self.tell("invalid_arguments", f"{node.tool}: {message}", at, node=node.id, hint=advice)
        made_by, holes = self.made_by, references.argument_holes
        for path, message, advice in misplaced_parties(
            declaration, holes, references.lookups, node=node.id, made_by=made_by, arguments=node.arguments
        ):
            at = ("nodes", index, "arguments", *path)
            self.tell("invalid_arguments", message, at, node=node.id, hint=advice)

    def _check_agent(self, index: int, node: Node) -> None:
        assert node.agent_name is not None
        declaration = tool_of_agent(node.agent_name, self.tools)
        if declaration is None:
            if not self.any_tool:
                hint = self.hints.near(
                    node.agent_name, [card.name for card in agent_cards(self.tools) if not is_inline(card.name)]
                )
                message = f"there is no agent {node.agent_name!r}"
                hint = hint or "name the file that has it with --agents, or add it with `dagwright agents add FILE`"
                self.tell("unknown_agent", message, ("nodes", index, "agent"), node=node.id, hint=hint)
            return
        card = declaration.agent
        if card is None:
            return
        if not (node.objective or "").strip():
            message = f"the agent {card.name!r} needs an objective, such as: {card.objective_template}"
            self.tell("invalid_field", message, ("nodes", index), node=node.id)
        if node.arguments:
            message = f"the agent {card.name!r} takes an objective, and no arguments"
            hint = "say it in the objective"
            self.tell("invalid_field", message, ("nodes", index, "arguments"), node=node.id, hint=hint)
        for name in card.tools:
            known = self.tools.get(name)
            if known is None and not self.any_tool:
                message = f"the agent {card.name!r} needs the tool {name!r}, which is not there"
                self.tell("unknown_tool", message, ("nodes", index, "agent"), node=node.id, hint=self._tool_hint(name))
            elif known is not None and known.agent is not None and known.agent.type == "llm":
                message = f"{name!r} is an agent of type llm, which the agent {card.name!r} cannot call as a tool"
                hint = "write a node for it, whose result this one depends on"
                self.tell("invalid_field", message, ("nodes", index, "agent"), node=node.id, hint=hint)

    def _tool_hint(self, name: str) -> str:
        if AGENT_PREFIX + name in self.tools:
            return f"it is an agent: write agent: {name}"
        if near := self.hints.near(name, self.tool_names):
            return near
        server, dot, tool = name.partition(".")
        if server and dot and tool:
            return (
                f"name the module that has it with --tools, or the servers.json in which the MCP server {server!r} is"
            )
        return "name the module that has it with --tools"

    def _schema(self, declaration: ToolDeclaration, *, index: int) -> SchemaOfTool | None:
        if declaration.input_schema is None:
            return None
        if declaration.name not in self.schemas:
            try:
                self.schemas[declaration.name] = SchemaOfTool(declaration.input_schema)
            except ValueError as error:
                self.schemas[declaration.name] = None
                message = f"the input schema of {declaration.name!r}: {error}"
                self.tell("unknown_tool", message, ("nodes", index, "tool"), node=None)
        return self.schemas[declaration.name]

    def _check_sub_plan(self, index: int, node: Node, references: NodeReferences) -> None:
        at = ("nodes", index, "plan")
        if not isinstance(node.plan, Mapping):
            self.tell(
                "unreadable",
                f"the file {node.plan!r} was not read; give the plan as a file",
                at,
                node=node.id,
            )
            return
        if len(self.base) >= 3 * MAX_DEPTH:
            self.tell("too_large", f"sub-plans are nested deeper than {MAX_DEPTH}", at, node=node.id)
            return
        document = self.document.sub_documents.get(index, Document(node.plan))
        if not document.is_read:
            return
        inner = _Checker(
            document,
            self.root,
            base=(*self.base, *at),
            tools=self.tools,
            any_tool=self.any_tool,
            path=f"{self.path}{node.id}/",
        )
        inner.hints = self.hints
        checked = inner.check()
        self.problems += inner.problems
        if checked is None:
            return
        self.sub_plans[index] = checked
        for name, declared in checked.inputs.items():
            if name not in node.arguments and "default" not in declared:
                message = f"the sub-plan needs the input {name!r}"
                self.tell("missing_input", message, ("nodes", index, "arguments"), node=node.id)
        holes = references.argument_holes
        schema = schema_of(checked.inputs if not inner.problems else {})
        for path, message, advice in schema.problems_of(node.arguments, holes):
            at_value = ("nodes", index, "arguments", *path)
            self.tell("invalid_arguments", f"the sub-plan's input {message}", at_value, node=node.id, hint=advice)
        written = document.plan.get("inputs")
        for name in node.arguments:
            if name not in checked.inputs and (written is None or (isinstance(written, dict) and name not in written)):
                hint = self.hints.near(name, checked.inputs)
                where = ("nodes", index, "arguments", name)
                self.tell("invalid_arguments", f"the sub-plan has no input {name!r}", where, node=node.id, hint=hint)

    def _read_output(self, plan: Plan, numbers: Mapping[str, int]) -> list[Hole]:
        holes: list[Hole] = []
        for path, text in walk_texts(plan.output):
            try:
                template = parse_template(text, numbers)
            except BadReferences as error:
                for bad in error.found:
                    hint = bad.hint or self.hints.near(bad.unknown, numbers)
                    message = f"Invalid reference: {bad.text}: {bad.message}" + (f"; {hint}" if hint else "")
                    self.tell("invalid_reference", message, ("output", *path), node=None, hint=hint)
                continue
            if any(not isinstance(part, str | ResultOf | Placeholder) for part in template):
                message = f"Invalid reference: {text!r:.80}: output can name results and placeholders only"
                self.tell("invalid_reference", message, ("output", *path), node=None)
            holes.append((path, template))
        return holes

    def _edges(
        self,
        nodes: Mapping[int, Node],
        references: Mapping[int, NodeReferences],
        numbers: Mapping[str, int],
        *,
        count: int,
    ) -> list[list[int]]:
        dependencies: list[list[int]] = [[] for _ in range(count)]
        for index, node in nodes.items():
            named = dict.fromkeys(map(numbers.get, (*node.depends_on, *references[index].nodes)))
            if index not in named and None not in named:
                dependencies[index] = [number for number in named if number is not None]
                continue
            needed: dict[int, None] = {}
            for place, name in enumerate(node.depends_on):
                if name not in numbers:
                    hint = self.hints.near(name, numbers, but=node.id)
                    message = f"{node.id!r} depends on {name!r}, which is no node" + (f"; {hint}" if hint else "")
                    at = ("nodes", index, "depends_on", place)
                    self.tell("unknown_dependency", message, at, node=node.id, hint=hint)
                else:
                    needed[numbers[name]] = None
            for name in references[index].nodes:
                if name in numbers:
                    needed[numbers[name]] = None
                else:
                    self._tell_unmade(index, node, name)
            if index in needed:
                del needed[index]
                message = f"{node.id!r} depends on itself"
                self.tell(
                    "self_dependency",
                    message,
                    ("nodes", index),
                    node=node.id,
                    hint=self.document.unknown_node_hint,
                )
            dependencies[index] = list(needed)
        return dependencies

    def _tell_unmade(self, index: int, node: Node, name: str) -> None:
        hint = self.document.unknown_node_hint
        message = f"Invalid reference: {name}: nothing makes it" + (f"; {hint}" if hint else "")
        for key, part in self.extra.get(index, {}).items():
            if isinstance(part, ResultOf) and part.node == name:
                at = ("nodes", index, "arguments", key)
                self.tell("invalid_reference", message, at, node=node.id, hint=hint)

    def _inputs(
        self, plan: Plan, references: Mapping[int, NodeReferences], output_holes: Sequence[Hole]
    ) -> dict[str, dict[str, Any]]:
        inputs = {name: value.model_dump(mode="json", exclude_none=True) for name, value in plan.inputs.items()}
        for name, schema in inputs.items():
            try:
                for problem in wrong_defaults({name: schema}):
                    self.tell("invalid_field", problem.message, ("inputs", name, "default"), node=None)
            except ValueError as error:
                self.tell("invalid_field", f"input {name!r}: {error}", ("inputs", name), node=None)
        found = [name for node in references.values() for name in node.placeholders]
        found += [part.name for _, template in output_holes for part in template if isinstance(part, Placeholder)]
        for name in found:
            inputs.setdefault(name, {})
        return inputs
