"""Checks of a single node: its kind, its effects, its human request, and its call of a tool or an agent."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dagwright.core.model.agents import agent_cards, tool_of_agent
from dagwright.core.model.argument_checks import EntityChecks, SchemaOfTool, problem_of_kinds
from dagwright.core.model.document import Document
from dagwright.core.model.plan import Cache, Node
from dagwright.core.model.resolvers import callable_tools, resolver_of
from dagwright.core.model.tools import AGENT_PREFIX, Effects, ToolDeclaration, effects_of_call, is_inline_agent
from dagwright.core.validation.checked_plan import CheckReport, NodeReferences
from dagwright.core.validation.human_fields import problems_of_requests
from dagwright.core.validation.worker_tools import WorkerTool, problems_of_worker_call


def effects_of_node(
    tool: ToolDeclaration | None, node: Node, arguments: Mapping[str, Any], *, unknown_paths: Iterable[Sequence[Any]]
) -> str | None:
    """Return the effects of the calls of a node; `None` if they are the effects of its tool.

    Args:
        arguments: arguments of the node.
        unknown_paths: paths in `arguments` whose values are not known yet.
    """
    if tool is None:
        return None
    effects = effects_of_call(tool, arguments, unknown_paths=unknown_paths)
    if node.effects is not None and not effects.changes_nothing:
        effects = Effects(node.effects)
    return None if effects is tool.effects else effects.value


def problem_of_effects(tool: ToolDeclaration | None, node: Node) -> tuple[str, str] | None:
    """Return the problem of the effects that a node declares, with a hint, or `None`."""
    if node.effects is None or (tool is not None and tool.effects_by is not None):
        return None
    name = node.tool or node.agent_name
    if name is None:
        return "'effects' needs a tool", "omit 'effects'"
    if tool is None:
        return None
    text = f"the effects of {name!r} do not depend on its arguments: they are {tool.effects.value!r} in every call"
    return text, "omit 'effects'; the tool declares its effects"


def problem_of_secrets(tool: ToolDeclaration) -> tuple[str, str | None] | None:
    """Return why a tool does not accept secrets in its arguments, with a hint, or `None`."""
    if tool.is_foreign:
        return f"{tool.name!r} runs in a worker of another program, which cannot be given secrets", None
    if tool.never_takes_secrets:
        hint = "use the secret in the tool that needs it, and bind the secret to that tool on the worker"
        return f"{tool.name!r} takes no secrets", hint
    return None


_KINDS = ("tool", "agent", "human", "plan")
_AGENT_HINT = "name its file: --agents on the command line, Worker(agents=[...]) in Python; or add it to the database"
_TOOL_HINT = "name its module: --tools on the command line, tools=[...] in Python"
_DEPENDENT_FIELDS = (("key", "for_each"), ("max_parallel", "for_each"), ("objective", "agent"))
"""Field -> field that it requires, as pairs."""


def _has_name_length(text: str) -> bool:
    return 0 < len(text.encode(errors="replace")) <= 200


class NodeChecks:
    """Checks of the nodes of one plan.

    Args:
        producers: node id -> tool that produces the node's result.
    """

    def __init__(
        self,
        document: Document,
        report: CheckReport,
        *,
        tools: Mapping[str, ToolDeclaration],
        allow_unknown_tools: bool,
        producers: Mapping[str, ToolDeclaration],
    ) -> None:
        self.document = document
        self.report = report
        self.tools = tools
        self.callable_tools = callable_tools(tools)
        self.tool_names = [name for name, tool in self.callable_tools.items() if tool.agent is None]
        self.entity_checks = EntityChecks(resolver_of(tools), producers)
        self.allow_unknown_tools = allow_unknown_tools
        self.producers = producers
        self.schemas: dict[str, SchemaOfTool | None] = {}

    def check(self, index: int, node: Node, references: NodeReferences, *, invalid_fields: frozenset[str]) -> None:
        """Check one node, without its sub-plan.

        Args:
            invalid_fields: invalid fields; the check does not report them as missing.
        """
        self._check_kind(index, node, invalid_fields=invalid_fields)
        self._check_requests(index, node, references)
        if "depends_on" not in invalid_fields:
            self._check_join(index, node, references)
        declaration = tool_of_agent(node.agent_name, self.tools) if node.agent_name else self.tools.get(node.tool or "")
        if (effects_problem := problem_of_effects(declaration, node)) is not None:
            self.report.report_problem(
                "invalid_field",
                effects_problem[0],
                ("nodes", index, "effects"),
                node_id=node.id,
                hint=effects_problem[1],
            )
        if isinstance(node.cache, Cache):
            self._check_cache(index, node, declaration, [path for path, _ in references.argument_bindings])
        if node.plan is None and node.tool is not None:
            self._check_tool(index, node, references, are_arguments_valid="arguments" not in invalid_fields)
        elif node.plan is None and node.agent_name is not None:
            self._check_agent(index, node, is_objective_valid="objective" not in invalid_fields)

    def _check_kind(self, index: int, node: Node, *, invalid_fields: frozenset[str]) -> None:
        count = sum(value is not None for value in (node.tool, node.agent_name, node.human, node.plan))
        if count != 1 and not (count == 0 and invalid_fields.intersection(_KINDS)):
            kinds = [name for name in _KINDS if getattr(node, name) is not None]
            actual = " and ".join(kinds) if kinds else "none of them"
            message = f"a node has exactly one of tool, agent, human and plan; this node has {actual}"
            hint = "omit all but one of them" if kinds else "write tool: NAME, or another of these fields"
            self.report.report_problem("invalid_field", message, ("nodes", index), node_id=node.id, hint=hint)
        for name, required_field in _DEPENDENT_FIELDS:
            if (
                getattr(node, name) is not None
                and getattr(node, required_field) is None
                and required_field not in invalid_fields
            ):
                self.report.report_problem(
                    "invalid_field", f"{name!r} needs {required_field!r}", ("nodes", index, name), node_id=node.id
                )
        for name, value in (("tool", node.tool), ("agent", node.agent_name)):
            # A character has at most four bytes, so short names need not be encoded.
            if (
                value is not None
                and not 0 < len(value) <= 50
                and not _has_name_length(value)
                and not is_inline_agent(value)
            ):
                message = f"{name} must be a name of 1 to 200 bytes"
                self.report.report_problem("invalid_field", message, ("nodes", index, name), node_id=node.id)

    def _check_requests(self, index: int, node: Node, references: NodeReferences) -> None:
        problems = problems_of_requests(
            node, human_bindings=references.human_bindings, approval_bindings=references.approval_bindings
        )
        for at, message, hint in problems:
            self.report.report_problem("invalid_field", message, ("nodes", index, *at), node_id=node.id, hint=hint)

    def _check_join(self, index: int, node: Node, references: NodeReferences) -> None:
        if isinstance(node.join, str):
            return
        count = len(dict.fromkeys([*node.depends_on, *references.nodes]))
        if node.join.at_least > count:
            message = f"join: at_least {node.join.at_least} of {count} dependencies can never be done"
            self.report.report_problem("invalid_field", message, ("nodes", index, "join"), node_id=node.id)

    def _check_cache(
        self, index: int, node: Node, declaration: ToolDeclaration | None, unknown_paths: Sequence[Sequence[Any]]
    ) -> None:
        name = node.tool or node.agent_name
        node_effects = effects_of_node(declaration, node, node.arguments, unknown_paths=unknown_paths)
        effects = Effects(node_effects) if node_effects else declaration.effects if declaration else Effects.WRITE
        if name is None:
            message = "'cache' needs a tool whose results can be reused"
        elif declaration is not None and not effects.changes_nothing:
            message = (
                f"results of {name!r} are never reused, because its effects are {effects.value!r}: "
                "each call has to make its change; only 'pure' and 'read' tools can have a cache"
            )
        elif declaration is not None and declaration.agent is not None:
            message = f"{name!r} is an agent, and results of agents are never reused"
        elif declaration is not None and declaration.is_foreign:
            message = f"{name!r} runs in a worker of another program, whose results are not cached"
        else:
            return
        self.report.report_problem(
            "invalid_field", message, ("nodes", index, "cache"), node_id=node.id, hint="omit 'cache'"
        )

    def _check_tool(self, index: int, node: Node, references: NodeReferences, *, are_arguments_valid: bool) -> None:
        assert node.tool is not None
        declaration = self.callable_tools.get(node.tool)
        if declaration is None:
            if not self.allow_unknown_tools:
                message = f"there is no tool {node.tool!r}"
                self.report.report_problem(
                    "unknown_tool", message, ("nodes", index, "tool"), node_id=node.id, hint=self._tool_hint(node.tool)
                )
            return
        if declaration.agent is not None:
            message, hint = f"{node.tool!r} is an agent, not a tool", f"write agent: {declaration.agent.name}"
            self.report.report_problem("invalid_field", message, ("nodes", index, "tool"), node_id=node.id, hint=hint)
            return
        if references.has_secrets and (problem := problem_of_secrets(declaration)) is not None:
            self.report.report_problem(
                "invalid_arguments", problem[0], ("nodes", index, "arguments"), node_id=node.id, hint=problem[1]
            )
        if declaration.undo is not None and declaration.undo not in self.tools and not self.allow_unknown_tools:
            message = f"{node.tool!r} is compensated by an unknown tool {declaration.undo!r}"
            hint = self._tool_hint(declaration.undo)
            self.report.report_problem("unknown_tool", message, ("nodes", index, "tool"), node_id=node.id, hint=hint)
        if are_arguments_valid:
            self._check_arguments(index, node, references, declaration)

    def _check_arguments(
        self, index: int, node: Node, references: NodeReferences, declaration: ToolDeclaration
    ) -> None:
        bindings = references.argument_bindings
        if declaration.worker is not None:
            worker_tool, is_sub_goal = (
                WorkerTool(declaration, declaration.worker),
                index in self.document.worker_tool_nodes,
            )
            for code, at, message, hint in problems_of_worker_call(
                node, worker_tool, bindings, producers=self.producers, is_sub_goal=is_sub_goal
            ):
                self.report.report_problem(code, message, ("nodes", index, *at), node_id=node.id, hint=hint)
        schema = self._schema(declaration, index=index)
        if schema is None:
            return
        dialect_has_dashes = self.document.dialect == "intents"
        for path, message, hint in schema.problems_of(node.arguments, bindings, dialect_has_dashes=dialect_has_dashes):
            at = ("nodes", index, "arguments", *path)
            self.report.report_problem("invalid_arguments", f"{node.tool}: {message}", at, node_id=node.id, hint=hint)
        for path, message, hint in self.entity_checks.problems_of(
            declaration, bindings, references.lookups, node_id=node.id, arguments=node.arguments
        ):
            at = ("nodes", index, "arguments", *path)
            self.report.report_problem("invalid_arguments", message, at, node_id=node.id, hint=hint)

    def _check_agent(self, index: int, node: Node, *, is_objective_valid: bool) -> None:
        assert node.agent_name is not None
        declaration = tool_of_agent(node.agent_name, self.tools)
        if declaration is None:
            if not self.allow_unknown_tools:
                known_names = [card.name for card in agent_cards(self.tools) if not is_inline_agent(card.name)]
                hint = self.report.hint_budget.suggestion(node.agent_name, known_names)
                message = f"there is no agent {node.agent_name!r}"
                hint = hint or _AGENT_HINT
                self.report.report_problem(
                    "unknown_agent", message, ("nodes", index, "agent"), node_id=node.id, hint=hint
                )
            return
        card = declaration.agent
        if card is None:
            return
        if is_objective_valid and not (node.objective or "").strip():
            message = f"the agent {card.name!r} needs an objective, such as: {card.objective_template}"
            self.report.report_problem("invalid_field", message, ("nodes", index), node_id=node.id)
        if node.arguments:
            message = f"the agent {card.name!r} takes an objective, not arguments"
            hint = "write the values into the objective"
            self.report.report_problem(
                "invalid_field", message, ("nodes", index, "arguments"), node_id=node.id, hint=hint
            )
        for name in card.tools:
            tool = self.tools.get(name)
            if tool is None and not self.allow_unknown_tools:
                message = f"the agent {card.name!r} needs an unknown tool {name!r}"
                self.report.report_problem(
                    "unknown_tool", message, ("nodes", index, "agent"), node_id=node.id, hint=self._tool_hint(name)
                )
            elif tool is not None and tool.agent is not None and tool.agent.type == "llm":
                message = f"{name!r} is an agent of type llm, which the agent {card.name!r} cannot call as a tool"
                hint = "write a separate node for this agent, and refer to its result"
                self.report.report_problem(
                    "invalid_field", message, ("nodes", index, "agent"), node_id=node.id, hint=hint
                )

    def _tool_hint(self, name: str) -> str:
        if AGENT_PREFIX + name in self.tools:
            return f"it is an agent: write agent: {name}"
        new_name = next((tool.name for tool in self.tools.values() if name in tool.aliases), None)
        if new_name is not None:
            return f"the tool was renamed: write tool: {new_name}"
        if suggestion := self.report.hint_budget.suggestion(name, self.tool_names):
            return suggestion
        server, dot, tool = name.partition(".")
        if server and dot and tool:
            return f"{_TOOL_HINT}, or the JSON file with the MCP server {server!r}"
        return _TOOL_HINT

    def _schema(self, declaration: ToolDeclaration, *, index: int) -> SchemaOfTool | None:
        if declaration.input_schema is None:
            return None
        if declaration.name not in self.schemas:
            try:
                self.schemas[declaration.name] = SchemaOfTool(declaration.input_schema, self.report.type_names)
                if (problem := problem_of_kinds(declaration, self.entity_checks.resolver)) is not None:
                    raise ValueError(problem)
            except ValueError as error:
                self.schemas[declaration.name] = None
                message = f"the input schema of {declaration.name!r}: {error}"
                self.report.report_problem("unknown_tool", message, ("nodes", index, "tool"), node_id=None)
        return self.schemas[declaration.name]
