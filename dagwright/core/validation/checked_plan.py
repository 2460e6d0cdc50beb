"""The result of a check: problems with their positions, the checked plan, and the references of its nodes.

A binding is the path of a text with references, together with the parsed template of the text.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dagwright.core.errors import Note, Problem, pointer
from dagwright.core.expressions.condition_parser import BadCondition
from dagwright.core.expressions.reference_parser import (
    KEY_HINT,
    BadReferences,
    contains_reference,
    item_hint,
    parse_template,
    references_in_keys,
    walk_texts,
)
from dagwright.core.expressions.references import Index, Item, Lookup, Placeholder, Reference, ResultOf, Template
from dagwright.core.expressions.stored_values import BindingPath, Secret
from dagwright.core.model import graph
from dagwright.core.model.compiled import Binding
from dagwright.core.model.document import Document
from dagwright.core.model.plan import Human, Node, PlanDocument, question_of
from dagwright.core.model.tools import ToolDeclaration
from dagwright.core.model.value_schemas import JSON_NAMES, TypeNames
from dagwright.core.name_hints import HintBudget
from dagwright.core.validation.condition_checks import check_condition


@dataclass(frozen=True, slots=True)
class ReferenceProblem:
    """A text of a node with an invalid reference.

    Args:
        at: path in the node.
        unknown_node: referenced node id that does not exist, if that is the problem.
    """

    code: str
    message: str
    at: tuple[str | int, ...]
    hint: str | None = None
    unknown_node: str | None = None


@dataclass(slots=True)
class NodeReferences:
    """References of one node.

    Args:
        argument_bindings: bindings in `arguments`.
        objective: template of the objective of an agent.
        for_each, key: templates of these texts; `None` if the field is missing or a literal list.
        item_bindings: bindings in a literal list of items.
        human_bindings, approval_bindings: bindings in the request of a human node and in an approval request.
        nodes: ids of the nodes whose values are read, distinct, in order of first use.
    """

    argument_bindings: list[Binding] = field(default_factory=list)
    objective: Template | None = None
    for_each: Template | None = None
    item_bindings: list[Binding] = field(default_factory=list)
    human_bindings: list[Binding] = field(default_factory=list)
    approval_bindings: list[Binding] = field(default_factory=list)
    key: Template | None = None
    nodes: dict[str, None] = field(default_factory=dict)
    placeholders: dict[str, None] = field(default_factory=dict)
    lookups: dict[Lookup, None] = field(default_factory=dict)
    has_secrets: bool = False
    problems: list[ReferenceProblem] = field(default_factory=list)


def read_references(
    node: Node, ids: Collection[str], *, dialect_references: Mapping[str, Reference | Lookup]
) -> NodeReferences:
    """Return the references of a node.

    Args:
        node: node with valid fields.
        ids: declared node ids; needs a fast `in`.
        dialect_references: argument key -> reference that the dialect parsed.
    """
    references = NodeReferences()
    reader = _Reader(node, ids, references)
    reader.read_arguments(node.arguments)
    for key, reference in dialect_references.items():
        if isinstance(reference, Lookup):
            references.lookups[reference] = None
            references.argument_bindings.append(((key,), (Placeholder(reference.input_name),)))
            continue
        references.argument_bindings.append(((key,), (reference,)))
        reader.record((reference,), at=("arguments", key), secrets_allowed=True)
    if node.objective is not None:
        references.objective = reader.parse_text(node.objective, at=("objective",))
    if node.for_each is not None:
        reader.read_items(node.for_each)
    if node.key is not None:
        references.key = reader.parse_text(node.key, at=("key",))
    if node.human is not None:
        references.human_bindings = reader.read_question(node.human, "human")
    if isinstance(node.approval, Human):
        references.approval_bindings = reader.read_question(node.approval, "approval")
    if node.when is not None:
        reader.read_condition(node.when)
    return references


class _Reader:
    """Reader of the texts of one node: adds their references and problems to `references`."""

    def __init__(self, node: Node, ids: Collection[str], references: NodeReferences) -> None:
        self.node = node
        self.ids = ids
        self.references = references

    def report(self, code: str, message: str, *, at: tuple[str | int, ...]) -> None:
        self.references.problems.append(ReferenceProblem(code, message, at))

    def report_references_in_keys(self, value: Any, *, at: tuple[str | int, ...]) -> None:
        """Report references in the keys of objects, which are not allowed."""
        for path, message in references_in_keys(value, self.ids):
            self.references.problems.append(ReferenceProblem("invalid_reference", message, (*at, *path), KEY_HINT))

    def read_arguments(self, arguments: Mapping[str, Any]) -> None:
        self.report_references_in_keys(arguments, at=("arguments",))
        for key, value in arguments.items():
            # Only objects and lists are walked: a walk is expensive, and nearly every argument is a plain value.
            if isinstance(value, dict | list):
                for path, text in walk_texts(value, base=(key,)):
                    self.read_argument(path, text)
            elif isinstance(value, str) and contains_reference(value):
                self.read_argument((key,), value)

    def read_argument(self, path: BindingPath, text: str) -> None:
        template = self.parse_text(text, at=("arguments", *path), secrets_allowed=self.node.plan is None)
        if template is not None:
            self.references.argument_bindings.append((path, template))

    def read_items(self, for_each: str | list[Any]) -> None:
        if isinstance(for_each, str):
            template = self.references.for_each = self.parse_text(for_each, at=("for_each",), items_allowed=False)
            if template is not None and (len(template) != 1 or isinstance(template[0], str)):
                self.report("invalid_field", "for_each must be one reference to a list, or a list", at=("for_each",))
            return
        self.report_references_in_keys(for_each, at=("for_each",))
        for path, text in walk_texts(for_each):
            template = self.parse_text(text, at=("for_each", *path), items_allowed=False)
            if template is not None:
                self.references.item_bindings.append((path, template))

    def read_question(self, human: Human, name: str) -> list[Binding]:
        """Return the bindings of a human request, with paths in its compiled form."""
        bindings: list[Binding] = []
        self.report_references_in_keys(question_of(human), at=(name,))
        for path, text in walk_texts(question_of(human)):
            template = self.parse_text(text, at=(name, *path))
            if template is not None:
                bindings.append((path, template))
        return bindings

    def parse_text(
        self,
        text: str,
        *,
        at: tuple[str | int, ...],
        items_allowed: bool = True,
        secrets_allowed: bool = False,
    ) -> Template | None:
        try:
            template = parse_template(text, self.ids)
        except BadReferences as error:
            for invalid_reference in error.invalid_references:
                message = f"Invalid reference: {invalid_reference.text}: {invalid_reference.message}"
                hint = (
                    item_hint(invalid_reference)
                    if items_allowed and self.node.for_each is not None
                    else invalid_reference.hint
                )
                self.references.problems.append(
                    ReferenceProblem(
                        "invalid_reference", message, at, hint, unknown_node=invalid_reference.unknown_node
                    )
                )
            self.record(error.parts, at=at, items_allowed=items_allowed, secrets_allowed=secrets_allowed)
            return None
        self.record(template, at=at, items_allowed=items_allowed, secrets_allowed=secrets_allowed)
        return template

    def record(
        self, template: Template, *, at: tuple[str | int, ...], items_allowed: bool = True, secrets_allowed: bool
    ) -> None:
        for part in template:
            if isinstance(part, ResultOf):
                self.references.nodes[part.node_id] = None
                continue
            match part:
                case Placeholder(name):
                    self.references.placeholders[name] = None
                case Secret() if secrets_allowed:
                    self.references.has_secrets = True
                case Secret():
                    self.report_misplaced_reference(part, "secrets are only allowed in the arguments of a tool", at=at)
                case Item() | Index() if self.node.for_each is None or not items_allowed:
                    self.report_misplaced_reference(part, "only allowed in a node with for_each", at=at)

    def report_misplaced_reference(self, part: Reference, reason: str, *, at: tuple[str | int, ...]) -> None:
        self.report("invalid_reference", f"Invalid reference: {{{{{part}}}}}: {reason}", at=at)

    def read_condition(self, text: str) -> None:
        try:
            condition = check_condition(text, self.ids.__contains__)
        except ValueError as error:
            hint, unknown_node = (error.hint, error.unknown_node) if isinstance(error, BadCondition) else (None, None)
            self.references.problems.append(
                ReferenceProblem("invalid_field", f"when: {error}", ("when",), hint, unknown_node=unknown_node)
            )
            return
        if condition.uses_item and self.node.for_each is None:
            self.report("invalid_field", "when: item is only allowed in a node with for_each", at=("when",))
        self.references.nodes.update(dict.fromkeys(condition.nodes))


class CheckReport:
    """Problems of one plan object. A child report for a sub-plan adds to the same list.

    Args:
        root: the whole document, to which reported pointers refer.
        base: path of the plan in the document.
        problems: problems found so far, including those of all sub-plans.
        hint_budget: budget for the hints of the check.
        type_names: names of types in messages.
    """

    def __init__(
        self,
        root: Document,
        *,
        base: tuple[str | int, ...] = (),
        problems: list[Problem],
        hint_budget: HintBudget,
        type_names: TypeNames = JSON_NAMES,
    ) -> None:
        self.root = root
        self.base = base
        self.problems = problems
        self.hint_budget = hint_budget
        self.type_names = type_names

    def child(self, *path: str | int) -> "CheckReport":
        """Return the report of a sub-plan."""
        base = (*self.base, *path)
        return CheckReport(
            self.root, base=base, problems=self.problems, hint_budget=self.hint_budget, type_names=self.type_names
        )

    def report_problem(
        self, code: str, message: str, at: Sequence[str | int], *, node_id: str | None, hint: str | None = None
    ) -> None:
        """Create a problem and add it. `at` is the path of the problem in the plan."""
        self.add(Problem(code, message, pointer(*at), node_id, hint))

    def add(self, problem: Problem) -> None:
        """Add a problem whose pointer starts at the plan."""
        location = self.root.written_pointer(pointer(*self.base) + problem.pointer)
        self.problems.append(Problem(problem.code, problem.message, location, problem.node_id, problem.hint))


@dataclass(frozen=True, slots=True)
class CheckedPlan:
    """A checked plan. If there are problems, invalid fields are missing and the plan must not run.

    Args:
        plan: all fields except the nodes.
        nodes: nodes in plan order.
        references: references of each node, in plan order.
        dependencies: node number -> numbers of the nodes that it waits for, distinct, in declared order.
        node_levels: node number -> level of the node, the length of the longest path from a root.
        output_bindings: bindings of the plan's `output`.
        inputs: name -> JSON Schema with prompt and default; declared inputs first, then the other inputs by first use.
        sub_plans: node number -> its checked sub-plan.
        raw_plan: the plan as its dialect translated it, before its fields were validated.
        worker_tool_nodes: numbers of the nodes that call a worker tool; needs a fast `in`.
    """

    plan: PlanDocument
    dialect: str
    nodes: Sequence[Node]
    references: Sequence[NodeReferences]
    dependencies: Sequence[Sequence[int]]
    node_levels: Sequence[int]
    output_bindings: Sequence[Binding]
    inputs: Mapping[str, Mapping[str, Any]]
    sub_plans: Mapping[int, "CheckedPlan"]
    notes: Sequence[Note]
    document: Document
    base: tuple[str | int, ...]
    tools: Mapping[str, ToolDeclaration]
    worker_tool_nodes: Collection[int]
    raw_plan: Mapping[str, Any]

    @property
    def edge_count(self) -> int:
        """Number of edges."""
        return sum(map(len, self.dependencies))

    @property
    def levels(self) -> list[list[str]]:
        """Ids by level (longest path from a root), each level in plan order."""
        ids_by_level: list[list[str]] = [[] for _ in range(max(self.node_levels, default=-1) + 1)]
        for node, level in zip(self.nodes, self.node_levels, strict=True):
            ids_by_level[level].append(node.id)
        return ids_by_level

    @property
    def critical_path(self) -> list[str]:
        """Ids of the longest chain by number of nodes; ties are resolved by plan order."""
        return [self.nodes[number].id for number in graph.critical_path(self.dependencies, self.node_levels)]

    @property
    def lookups(self) -> list[Lookup]:
        """Distinct lookups in order of first use, followed by the lookups of sub-plans.

        The parent run also resolves the lookups of its sub-plans, because nodes only start after all lookups.
        """
        all_lookups = [part for node in self.references for part in node.lookups]
        for sub_plan in self.sub_plans.values():
            all_lookups += sub_plan.lookups
        return list(dict.fromkeys(all_lookups))
