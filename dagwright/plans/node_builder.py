"""Build a node in the plan format from the arguments of `Plan.add`, and check it when it is added.

The checks cover the node's handles, and everything that `Plan.check` can check without the rest of the plan.
`Plan.check` finds the other problems: cycles, unknown tools, and unknown nodes in strings such as `{{a.result}}`.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import JsonValue

from dagwright.core.errors import PlanInvalid, Problem, pointer
from dagwright.core.model.plan import Node
from dagwright.core.model.tools import ToolDeclaration
from dagwright.core.model.value_schemas import PYTHON_NAMES
from dagwright.core.name_hints import DEFAULT_HINT_COST, HintBudget, suggestion
from dagwright.core.validation.inputs import problems_of_defaults, problems_of_types
from dagwright.core.validation.plan_values import PlanValues
from dagwright.core.validation.validation import NodeInspection, inspect_node
from dagwright.core.validation.value_checks import ValueChecks
from dagwright.dialects import to_document
from dagwright.plans.expressions import handles_of
from dagwright.plans.handles import Handle, HandleUse, NodeHandle
from dagwright.plans.node_options import NodeOptions, write_options
from dagwright.plans.node_values import JsonWriter, ValuePath


@dataclass(frozen=True, slots=True)
class Work:
    """Work of a node: a tool, an agent, a sub-plan, or a request to a person.

    Args:
        field: `tool`, `agent`, `human` or `plan`.
        value: value of that field.
        name: name from which the ID of the node is derived.
        parameters: parameters of its tool, or inputs of its sub-plan, if they are known.
    """

    field: str
    value: object
    name: str
    parameters: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class NodeBuilder:
    """Builds the next node of a plan.

    Args:
        owner: the plan, compared by identity.
        values: schemas of the values of the plan so far; `build` adds the result of the new node.
        index: position of the next node.
        tools: all known tools.
    """

    owner: object
    values: PlanValues
    index: int
    tools: Mapping[str, ToolDeclaration]

    def build(
        self, work: Work, arguments: Mapping[str, object], options: NodeOptions, **fields: object
    ) -> tuple[dict[str, JsonValue], NodeHandle[Any]]:
        """Return a node in the plan format, and its handle.

        Args:
            fields: fields of the node in addition to the work, the arguments and the options.

        Raises:
            PlanInvalid: a field, an argument or a handle is invalid.
            TypeError: `write_options` cannot serialize a condition, or the ID is not a string.
        """
        writer = JsonWriter()
        node_id = self._new_id(options.get("id"), work.name)
        document: dict[str, JsonValue] = {"id": node_id}
        try:
            document |= {"title": options["title"]} if options.get("title") is not None else {}
            document[work.field] = writer.write(work.value, (work.field,))
            document |= {name: writer.write(value, (name,)) for name, value in fields.items() if value is not None}
            document |= {"arguments": writer.write(arguments, ("arguments",))} if arguments else {}
            other_options = {name: value for name, value in options.items() if name not in ("id", "title")}
            document |= write_options(other_options, writer)  # type: ignore[arg-type] # lacks `id` and `title`
            uses = [*writer.uses, *_uses_of_options(options)]
            inspection, problems = inspect_added_node(
                document, uses, owner=self.owner, values=self.values, tools=self.tools
            )
        except PlanInvalid as invalid:
            problems_in_node = map(relative_to_node, invalid.problems)
            raise PlanInvalid(self._with_pointers_into_plan(problems_in_node, node_id)) from None
        if problems:
            raise PlanInvalid(self._with_pointers_into_plan(problems, inspection.node.id))
        schema = self.values.add(inspection.node, tools=inspection.tools, sub_plan=inspection.sub_plan)
        return document, NodeHandle(inspection.node.id, owner=self.owner, schema=schema)

    def _with_pointers_into_plan(self, problems: Iterable[Problem], node_id: str) -> list[Problem]:
        """Replace the pointers of problems, which are relative to the node, with pointers into the plan."""
        base = pointer("nodes", self.index)
        return [replace(problem, pointer=base + problem.pointer, node_id=node_id) for problem in problems]

    def _new_id(self, given_id: str | None, name: str) -> str:
        if given_id is None:
            return free_id(name, self.values.results)
        if not isinstance(given_id, str):
            raise TypeError(f"add(): id must be a string, not {given_id!r:.60}")
        if given_id in self.values.results:
            message = f"the id {given_id!r:.80} is already used"
            raise PlanInvalid([Problem("duplicate_id", message, pointer("nodes", self.index, "id"), given_id)])
        return given_id


def _uses_of_options(options: NodeOptions) -> list[tuple[ValuePath, HandleUse]]:
    """Return the handles in `needs` and `when`, which are written to the plan as plain texts."""
    needs, when = options.get("needs", ()), options.get("when")
    uses: list[tuple[ValuePath, HandleUse]] = [
        (("depends_on", index), HandleUse(need)) for index, need in enumerate(needs) if isinstance(need, Handle)
    ]
    return [*uses, *((("when",), HandleUse(operand)) for operand in handles_of(when) if isinstance(operand, Handle))]


def free_id(name: str, taken_ids: Collection[str]) -> str:
    """Return a name, with a number appended if the name is taken."""
    count, candidate = 1, name
    while candidate in taken_ids:
        count += 1
        candidate = f"{name}_{count}"
    return candidate


_OPTION_NAMES = frozenset(NodeOptions.__annotations__)
_OPTION_ALIASES = {"depends_on": "needs", "after": "needs"}
"""Name of an option in plan files or other libraries -> name of the option of `Plan.add`."""
_FIELDS_WITH_REFERENCES = ("arguments", "for_each", "key", "when", "depends_on", "objective", "human", "approval")
"""Fields in which references are replaced when the plan runs."""
_NO_NEEDS = ()
"""Default of the option `needs`. An option that is this object counts as not passed.

Python has only one empty tuple, so an explicit `needs=()` also counts as not passed.
"""


def inspect_added_node(
    node_document: Mapping[str, JsonValue],
    uses: Sequence[tuple[ValuePath, HandleUse]],
    *,
    owner: object,
    values: PlanValues,
    tools: Mapping[str, ToolDeclaration],
) -> tuple[NodeInspection, list[Problem]]:
    """Check a node that is added to a plan; return the inspected node and its problems.

    The pointers of the problems are relative to the node.

    Args:
        node_document: the node in the plan format.
        uses: handles of the node, each with its path in the node.
        owner: the plan, compared by identity.
        values: schemas of the values of the plan so far.
        tools: all known tools.

    Raises:
        PlanInvalid: a field of the node is invalid.
    """
    document = to_document({"plan": 1, "nodes": [dict(node_document)]}, dialect="plan")
    inspection = inspect_node(
        document, ids=values.results, producers=values.producers, tools=tools, type_names=PYTHON_NAMES
    )
    node, tool = inspection.node, tools.get(inspection.node.tool or "")
    checks = ValueChecks(values, HintBudget(DEFAULT_HINT_COST), PYTHON_NAMES, is_strict=True)
    value_problems = checks.problems_of(node, inspection.references, tool=tool, sub_plan=inspection.sub_plan)
    problems = [
        *problems_of_handles(node, uses, owner=owner),
        *(_with_hint_of_option(relative_to_node(problem), tool) for problem in inspection.problems),
        *(
            Problem(problem.code, problem.message, pointer(*problem.at), node.id, problem.hint)
            for problem in value_problems
        ),
    ]
    # Keep only the first problem of each value. Problems of handles come first, because they name the handle.
    return inspection, [*{problem.pointer: problem for problem in reversed(problems)}.values()][::-1]


def relative_to_node(problem: Problem) -> Problem:
    """Return a problem of the only node of a document, with a pointer that starts at the node."""
    return replace(problem, pointer=problem.pointer.removeprefix("/nodes/0"))


def problems_of_handles(node: Node, uses: Sequence[tuple[ValuePath, HandleUse]], *, owner: object) -> Iterator[Problem]:
    """Yield a problem for each handle that cannot be used.

    A handle cannot be used if it is in a constant field, belongs to another plan, or reads an item of a list over which
    the node does not iterate.
    """
    for path, use in uses:
        at = pointer(*path)
        if path[0] not in _FIELDS_WITH_REFERENCES:
            message = f"{use.handle!r} is used in {path[0]}, which is constant"
            hint = f"handles are possible in {', '.join(_FIELDS_WITH_REFERENCES)}"
            yield Problem("invalid_reference", message, at, node.id, hint)
        elif use.owner is not owner:
            message = f"{use.handle!r} belongs to another plan"
            hint = "add that plan as a node, and give its values as arguments"
            yield Problem("invalid_reference", message, at, node.id, hint)
        elif use.differs_per_item and path[0] != "for_each" and node.for_each is None:
            list_text = f" {use.list_handle!r}" if use.list_handle is not None else ""
            hint = f"give the list{list_text} to for_each="
            yield Problem("invalid_reference", f"{use.handle!r} is used in a node without for_each", at, node.id, hint)
        elif use.differs_per_item and use.list_handle is not None and str(use.list_handle) != node.for_each:
            message = f"{use.handle!r} is an item of {use.list_handle!r}, but for_each is {node.for_each!s:.80}"
            yield Problem("invalid_reference", message, at, node.id, "use .item of the list that is given to for_each=")


def _with_hint_of_option(problem: Problem, tool: ToolDeclaration | None) -> Problem:
    """Add a hint to the problem of an unknown argument whose name is similar to an option of `Plan.add`."""
    name = problem.pointer.removeprefix("/arguments/")
    parameters: Mapping[str, Any] = {} if tool is None else (tool.input_schema or {}).get("properties", {})
    if problem.hint is not None or "/" in name or name in parameters or tool is None:
        return problem
    option = _OPTION_ALIASES.get(name)
    return replace(problem, hint=f"did you mean {option!r}?" if option else suggestion(name, _OPTION_NAMES))


def problem_of_option(
    parameters: Collection[str], options: Mapping[str, object], arguments: Collection[str]
) -> Problem | None:
    """Return a problem if an option of `Plan.add` may be meant as an argument, because a parameter has the same name.

    Args:
        parameters: parameters of the tool, or inputs of the sub-plan.
        arguments: names in the `arguments` option, which are unambiguous.
    """
    passed_options = [name for name, value in options.items() if value is not None and value is not _NO_NEEDS]
    name = next((name for name in passed_options if name in parameters and name not in arguments), None)
    if name is None:
        return None
    message = f"{name!r} is an option of the node, and also an argument"
    hint = f"give the argument in arguments={{{name!r}: ...}}"
    return Problem("unknown_argument", message, pointer("nodes"), hint=hint)


def problems_of_input(name: str, declaration: Mapping[str, Any]) -> list[Problem]:
    """Return the problems of the declaration of an input, and of its default."""
    at = pointer("inputs", name)
    mismatches = [
        Problem("invalid_field", f"{name}: {text}", at + pointer(*path), hint=hint)
        for path, text, hint in problems_of_types(declaration)
    ]
    try:
        return mismatches or problems_of_defaults({name: declaration}, PYTHON_NAMES)
    except ValueError as error:
        return [Problem("invalid_field", f"the input {name!r}: {error}", at)]
