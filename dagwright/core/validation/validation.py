"""Check a plan document and report all problems, not only the first.

`check_document` returns the checked plan with its graph. The cost of the check is linear in nodes and edges. The
compiler rejects features that it does not support (`dagwright.core.compiler.compilation`).
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from dagwright.core.errors import PlanInvalid, Problem, ProblemList
from dagwright.core.expressions.paths import describe_type
from dagwright.core.expressions.reference_parser import (
    KEY_HINT,
    BadReferences,
    parse_template,
    references_in_keys,
    walk_texts,
)
from dagwright.core.expressions.references import Lookup, Placeholder, Reference, ResultOf
from dagwright.core.model.agents import InlineAgent, agent_declaration
from dagwright.core.model.compiled import Binding
from dagwright.core.model.document import Document
from dagwright.core.model.lookup_kinds import LookupKinds
from dagwright.core.model.lookups import MAX_LOOKUPS
from dagwright.core.model.plan import Node, PlanDocument
from dagwright.core.model.resolvers import UNKNOWN_RESOLVER, resolver_of
from dagwright.core.model.tools import AGENT_PREFIX, ToolDeclaration
from dagwright.core.model.value_schemas import TypeNames
from dagwright.core.name_hints import DEFAULT_HINT_COST, HintBudget, find_nearest_names
from dagwright.core.validation.checked_plan import CheckedPlan, CheckReport, NodeReferences, read_references
from dagwright.core.validation.dependency_checks import DependencyChecks, check_levels, number_nodes
from dagwright.core.validation.field_problems import parse_nodes, parse_plan_fields
from dagwright.core.validation.inputs import problems_of_defaults, problems_of_types, schema_of
from dagwright.core.validation.node_checks import NodeChecks

MAX_SUB_PLAN_DEPTH = 8
"""Deepest nesting of sub-plans; a deeper plan is a mistake and would overflow the stack."""

WRITE_SUB_PLAN = "write the sub-plan itself into the node (plan: {nodes: […]})"
"""Hint for a client that names a file as a sub-plan."""


def check_document(
    document: Document,
    *,
    tools: Mapping[str, ToolDeclaration],
    allow_unknown_tools: bool = False,
    max_hint_cost: int = DEFAULT_HINT_COST,
) -> CheckedPlan:
    """Check a document and return its plan.

    Args:
        document: document as parsed by its dialect.
        tools: name -> declaration of every known tool.
        allow_unknown_tools: accept unknown tools and agents.
        max_hint_cost: maximum cost of all hints (see `HintBudget`).

    Raises:
        PlanInvalid: the plan has problems. Problems of the dialect are first; the others are in document order.
    """
    checked_plan, problems = inspect_document(
        document, tools=tools, allow_unknown_tools=allow_unknown_tools, max_hint_cost=max_hint_cost
    )
    if checked_plan is None or problems:
        raise PlanInvalid(problems)
    return checked_plan


def inspect_document(
    document: Document,
    *,
    tools: Mapping[str, ToolDeclaration],
    allow_unknown_tools: bool = False,
    max_hint_cost: int = DEFAULT_HINT_COST,
) -> tuple[CheckedPlan | None, list[Problem]]:
    """Return the valid part of a plan and its problems; the plan is `None` if `nodes` is not a list.

    A plan with problems must not run, because invalid fields of nodes are missing in it. See `check_document` for the
    arguments.

    Raises:
        PlanInvalid: the number of problems exceeds the limit of a report.
    """
    problems = ProblemList(document.problems)
    report = CheckReport(document, problems=problems, hint_budget=HintBudget(max_hint_cost))
    # A copy, because inline agents are added during the check.
    checked_plan = _Checker(document, report, tools=dict(tools), allow_unknown_tools=allow_unknown_tools).check()
    if checked_plan is not None and (count := len(checked_plan.lookups)) > MAX_LOOKUPS:
        message = f"the plan looks up {count:,} entities; a run can look up at most {MAX_LOOKUPS:,}"
        problems.append(Problem("too_large", message, hint="split the plan"))
    lacks_resolver = (
        checked_plan is not None and not allow_unknown_tools and resolver_of(checked_plan.tools) is UNKNOWN_RESOLVER
    )
    if checked_plan is not None and lacks_resolver and not problems and checked_plan.lookups:
        message = f"the plan looks up {checked_plan.lookups[0].search_text!r:.80}, but no resolver is installed"
        problems.append(Problem("unknown_tool", message, hint="install a plugin with a resolver"))
    return checked_plan, problems


class NodeInspection(NamedTuple):
    """One checked node: its references, its valid sub-plan if any, all tools, and its problems."""

    node: Node
    references: NodeReferences
    sub_plan: CheckedPlan | None
    tools: Mapping[str, ToolDeclaration]
    problems: Sequence[Problem]


def inspect_node(
    document: Document,
    *,
    ids: Collection[str],
    producers: Mapping[str, ToolDeclaration],
    tools: Mapping[str, ToolDeclaration],
    type_names: TypeNames,
) -> NodeInspection:
    """Check the only node of a document before it is added to a plan. Unknown nodes and tools are accepted.

    Args:
        ids: IDs of the other nodes of the plan.
        producers: node id -> tool that produces its result.
        type_names: names of types in messages.

    Raises:
        PlanInvalid: a field of the node is invalid, or the number of problems exceeds the limit of a report.
    """
    problems = ProblemList(document.problems)
    report = CheckReport(document, problems=problems, hint_budget=HintBudget(DEFAULT_HINT_COST), type_names=type_names)
    parsed_nodes = parse_nodes(document.plan["nodes"])
    if parsed_nodes.problems:
        raise PlanInvalid(parsed_nodes.problems)
    checker = _Checker(document, report, tools=dict(tools), allow_unknown_tools=True)
    node, references = checker.check_node(parsed_nodes.nodes[0], ids, producers)
    return NodeInspection(node, references, checker.sub_plans.get(0), checker.tools, problems)


class _Checker:
    """Check of one plan object; each sub-plan gets a separate checker."""

    def __init__(
        self,
        document: Document,
        report: CheckReport,
        *,
        tools: dict[str, ToolDeclaration],
        allow_unknown_tools: bool,
        path: str = "",
    ) -> None:
        """Prepare the check of a plan.

        Args:
            tools: tools shared by all plans of the check; inline agents are added to these tools.
            path: ids of the nodes that lead to a sub-plan, each followed by `/`.
        """
        self.path = path
        self.document = document
        self.report = report
        self.hint_budget = report.hint_budget
        self.raw = document.plan
        self.tools = tools
        self.allow_unknown_tools = allow_unknown_tools
        self.sub_plans: dict[int, CheckedPlan] = {}
        # Node number -> argument key -> reference that the dialect parsed.
        self.dialect_references: dict[int, dict[str, Reference | Lookup]] = {}
        for (number, key), reference in document.bindings.items():
            self.dialect_references.setdefault(number, {})[key] = reference

    def check(self) -> CheckedPlan | None:
        plan, plan_problems = parse_plan_fields(self.raw)
        raw_nodes = self.raw.get("nodes")
        if not isinstance(raw_nodes, list):
            for problem in plan_problems:
                if problem.pointer != "/nodes":
                    self.report.add(problem)
            has_nodes = "nodes" in self.raw
            message = f"'nodes' must be a list, not {describe_type(raw_nodes)}" if has_nodes else "'nodes' is missing"
            hint = "write a list of nodes, such as nodes: [{id: a, tool: NAME}]"
            self.report.report_problem(
                "invalid_field", message, ("nodes",) if has_nodes else (), node_id=None, hint=hint
            )
            return None
        parsed_nodes = parse_nodes(raw_nodes)
        for problem in [*plan_problems, *parsed_nodes.problems]:
            self.report.add(problem)
        if not raw_nodes and not self.document.problems:
            self.report.report_problem("empty_plan", "the plan has no nodes", ("nodes",), node_id=None)
        nodes = {index: self._register_inline_agent(index, node) for index, node in parsed_nodes.nodes.items()}
        numbers = number_nodes(nodes, raw_nodes if parsed_nodes.problems else (), self.report)
        references = self._read_references(nodes, numbers, invalid_fields=parsed_nodes.invalid_fields)
        output_bindings = self._read_output(plan, numbers)
        dependency_checks = DependencyChecks(self.document, self.report, dialect_references=self.dialect_references)
        dependencies = dependency_checks.resolve_dependencies(nodes, references, numbers, node_count=len(raw_nodes))
        node_levels = check_levels(dependencies, nodes, self.report)
        inputs = self._read_inputs(plan, references, output_bindings)
        return CheckedPlan(
            plan=plan,
            dialect=self.document.dialect,
            nodes=list(nodes.values()),
            references=[references[index] for index in nodes],
            dependencies=dependencies,
            node_levels=node_levels,
            output_bindings=output_bindings,
            inputs=inputs,
            sub_plans=self.sub_plans,
            notes=self.document.notes,
            document=self.report.root,
            base=self.report.base,
            tools=self.tools,
            worker_tool_nodes=self.document.worker_tool_nodes,
            raw_plan=self.raw,
        )

    def check_node(
        self, node: Node, ids: Collection[str], producers: Mapping[str, ToolDeclaration]
    ) -> tuple[Node, NodeReferences]:
        """Check the first node alone. References to unknown nodes are not reported."""
        node = self._register_inline_agent(0, node)
        references = read_references(node, ids, dialect_references={})
        for problem in references.problems:
            if problem.unknown_node is None:
                at = ("nodes", 0, *problem.at)
                self.report.report_problem(problem.code, problem.message, at, node_id=node.id, hint=problem.hint)
        checks = NodeChecks(self.document, self.report, tools=self.tools, allow_unknown_tools=True, producers=producers)
        checks.check(0, node, references, invalid_fields=frozenset())
        if node.plan is not None:
            self._check_sub_plan(0, node, references)
        return node, references

    def _register_inline_agent(self, index: int, node: Node) -> Node:
        """Register the inline agent of a node, if it has one, and return the node with the name of the agent."""
        if not isinstance(node.agent, InlineAgent):
            return node
        if "{{" in node.agent.prompt:
            message = "a prompt must not contain references: write them in the objective"
            self.report.report_problem("invalid_field", message, ("nodes", index, "agent", "prompt"), node_id=node.id)
        card = node.agent.to_card(name := self.path + node.id)
        count = 1
        while AGENT_PREFIX + card.name in self.tools:
            # Ids may contain slashes: a node `a/b` and the node `b` of a sub-plan `a` have different agents.
            count += 1
            card = node.agent.to_card(f"{name}#{count}")
        declaration = agent_declaration(card)
        self.tools[declaration.name] = declaration
        return node.model_copy(update={"agent": card.name})

    def _read_references(
        self, nodes: Mapping[int, Node], numbers: Mapping[str, int], *, invalid_fields: Mapping[int, frozenset[str]]
    ) -> dict[int, NodeReferences]:
        resolver = resolver_of(self.tools)
        lookup_kinds = LookupKinds(
            nodes, self.dialect_references, self.tools, resolver=resolver, reads_ids=self.document.dialect == "intents"
        )
        for index, key, message, hint in lookup_kinds.problems():
            at = ("nodes", index, "arguments", key, "entity_type")
            self.report.report_problem("invalid_arguments", message, at, node_id=nodes[index].id, hint=hint)
        producers = {
            node.id: self.tools[node.tool]
            for node in nodes.values()
            if node.tool in self.tools and node.for_each is None
        }
        checks = NodeChecks(
            self.document,
            self.report,
            tools=self.tools,
            allow_unknown_tools=self.allow_unknown_tools,
            producers=producers,
        )
        references: dict[int, NodeReferences] = {}
        for index, node in nodes.items():
            references[index] = self._read_node(index, node, numbers, lookup_kinds)
            checks.check(index, node, references[index], invalid_fields=invalid_fields.get(index, frozenset()))
            if node.plan is not None:
                self._check_sub_plan(index, node, references[index])
        return references

    def _read_node(
        self, index: int, node: Node, numbers: Mapping[str, int], lookup_kinds: LookupKinds
    ) -> NodeReferences:
        references = read_references(node, numbers, dialect_references=lookup_kinds.parts_of(index, node))
        for problem in references.problems:
            hint = problem.hint or self.hint_budget.suggestion(problem.unknown_node, numbers, excluded_name=node.id)
            self.report.report_problem(
                problem.code, problem.message, ("nodes", index, *problem.at), node_id=node.id, hint=hint
            )
        return references

    def _check_sub_plan(self, index: int, node: Node, references: NodeReferences) -> None:
        document = self._sub_document(index, node)
        if document is None:
            return
        problem_count = len(self.report.problems)
        sub_plan_report = self.report.child("nodes", index, "plan")
        sub_plan = _Checker(
            document,
            sub_plan_report,
            tools=self.tools,
            allow_unknown_tools=self.allow_unknown_tools,
            path=f"{self.path}{node.id}/",
        ).check()
        if sub_plan is None:
            return
        self.sub_plans[index] = sub_plan
        unknown_names = _unknown_inputs(node, sub_plan, document.plan.get("inputs"))
        self._report_missing_inputs(index, node, sub_plan, unknown_names)
        schema = schema_of(
            sub_plan.inputs if len(self.report.problems) == problem_count else {}, self.report.type_names
        )
        for path, message, hint in schema.problems_of(node.arguments, references.argument_bindings):
            self._report_argument(index, node, path, f"the sub-plan's input {message}", hint)
        for name in unknown_names:
            hint = self.hint_budget.suggestion(name, sub_plan.inputs)
            self._report_argument(index, node, (name,), f"the sub-plan has no input {name!r}", hint)

    def _sub_document(self, index: int, node: Node) -> Document | None:
        """Return the document of a sub-plan.

        If the sub-plan cannot be checked, report the problem and return `None`.
        """
        at = ("nodes", index, "plan")
        if not isinstance(node.plan, Mapping):
            message = (
                f"the sub-plan {node.plan!r:.200} is a file name, but files of clients are not read: {WRITE_SUB_PLAN}"
            )
            self.report.report_problem("unreadable", message, at, node_id=node.id)
            return None
        if len(self.report.base) >= 3 * MAX_SUB_PLAN_DEPTH:
            self.report.report_problem(
                "too_large", f"sub-plans are nested deeper than {MAX_SUB_PLAN_DEPTH}", at, node_id=node.id
            )
            return None
        document = self.document.sub_documents.get(index, Document(node.plan))
        return document if document.is_parsed else None

    def _report_missing_inputs(
        self, index: int, node: Node, sub_plan: CheckedPlan, unknown_names: Sequence[str]
    ) -> None:
        """Report the inputs of a sub-plan that a node does not set, except those whose names the node misspells."""
        misspelt_names = {
            near_name
            for name in unknown_names
            for near_name in find_nearest_names(name, sub_plan.inputs, limit=1, budget=self.hint_budget)
        }
        for name, schema in sub_plan.inputs.items():
            if name not in node.arguments and "default" not in schema and name not in misspelt_names:
                message = f"the sub-plan needs the input {name!r}"
                self.report.report_problem("missing_input", message, ("nodes", index, "arguments"), node_id=node.id)

    def _report_argument(
        self, index: int, node: Node, path: Sequence[str | int], message: str, hint: str | None
    ) -> None:
        at = ("nodes", index, "arguments", *path)
        self.report.report_problem("invalid_arguments", message, at, node_id=node.id, hint=hint)

    def _read_output(self, plan: PlanDocument, numbers: Mapping[str, int]) -> list[Binding]:
        bindings: list[Binding] = []
        for path, message in references_in_keys(plan.output, numbers):
            self.report.report_problem("invalid_reference", message, ("output", *path), node_id=None, hint=KEY_HINT)
        for path, text in walk_texts(plan.output):
            try:
                template = parse_template(text, numbers)
            except BadReferences as error:
                for invalid_reference in error.invalid_references:
                    hint = invalid_reference.hint or self.hint_budget.suggestion(
                        invalid_reference.unknown_node, numbers
                    )
                    message = f"Invalid reference: {invalid_reference.text}: {invalid_reference.message}"
                    self.report.report_problem("invalid_reference", message, ("output", *path), node_id=None, hint=hint)
                continue
            if any(not isinstance(part, str | ResultOf | Placeholder) for part in template):
                message = f"Invalid reference: {text!r:.80}: output can name results and placeholders only"
                self.report.report_problem("invalid_reference", message, ("output", *path), node_id=None)
            bindings.append((path, template))
        return bindings

    def _read_inputs(
        self, plan: PlanDocument, references: Mapping[int, NodeReferences], output_bindings: Sequence[Binding]
    ) -> dict[str, dict[str, Any]]:
        inputs = {name: value.model_dump(mode="json", exclude_none=True) for name, value in plan.inputs.items()}
        for name, schema in inputs.items():
            problems = [*problems_of_types(schema)]
            for path, message, hint in problems:
                label = ".".join(map(str, ("inputs", name, *path)))
                self.report.report_problem(
                    "invalid_field", f"{label}: {message}", ("inputs", name, *path), node_id=None, hint=hint
                )
            if problems:
                inputs[name] = {}
                continue
            try:
                for problem in problems_of_defaults({name: schema}):
                    self.report.report_problem(
                        "invalid_field", problem.message, ("inputs", name, "default"), node_id=None
                    )
            except ValueError as error:
                self.report.report_problem("invalid_field", f"input {name!r}: {error}", ("inputs", name), node_id=None)
        names = [name for node in references.values() for name in node.placeholders]
        names += [part.name for _, template in output_bindings for part in template if isinstance(part, Placeholder)]
        for name in names:
            inputs.setdefault(name, {})
        return inputs


def _unknown_inputs(node: Node, sub_plan: CheckedPlan, raw_inputs: Any) -> list[str]:
    """Return the arguments of a node that its sub-plan does not declare as inputs.

    Args:
        raw_inputs: inputs as written in the sub-plan; if they are not an object, no argument counts as unknown.
    """
    return [
        name
        for name in node.arguments
        if name not in sub_plan.inputs
        and (raw_inputs is None or (isinstance(raw_inputs, dict) and name not in raw_inputs))
    ]
