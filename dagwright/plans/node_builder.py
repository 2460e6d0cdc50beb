"""Build a node in the plan format from the arguments of `Plan.add`."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import JsonValue

from dagwright.core.expressions.conditions import parse_condition
from dagwright.core.model.errors import PlanInvalid, Problem, pointer
from dagwright.core.model.plan import Node
from dagwright.core.model.tools import ToolDeclaration
from dagwright.core.validation.field_problems import read_nodes
from dagwright.plans.call_checks import Uses, problems_of_call, problems_of_handles
from dagwright.plans.expressions import Operand
from dagwright.plans.handles import Handle, HandleUse, NodeHandle, ValueSchema
from dagwright.plans.node_options import NodeOptions, written_options
from dagwright.plans.node_values import JsonWriter

_RESULT_CHANGES = ("skip", "ask", "replan")


@dataclass(frozen=True, slots=True)
class Work:
    """Work of a node.

    Args:
        field: `tool`, `agent`, `human` or `plan`.
        value: value of that field.
        name: name from which an ID is derived.
        declaration: declaration of its tool, if it is known.
        problems: yields the problems of the node beyond its fields.
    """

    field: str
    value: object
    name: str
    declaration: ToolDeclaration | None = None
    problems: Callable[[Node], Iterator[Problem]] | None = None


@dataclass(frozen=True, slots=True)
class NodeBuilder:
    """Builds the next node of a plan.

    Args:
        owner: identity of the plan.
        taken: IDs of the existing nodes.
        index: position of the next node.
    """

    owner: object
    taken: Collection[str]
    index: int

    def build(
        self, work: Work, arguments: Mapping[str, object], options: NodeOptions, **fields: object
    ) -> tuple[dict[str, JsonValue], NodeHandle[Any]]:
        """Return a node in the plan format, and its handle.

        Args:
            fields: further fields of the node.

        Raises:
            PlanInvalid: a field, an argument or a handle is invalid.
            TypeError: as `written_options`.
        """
        writer = JsonWriter()
        node_id = self._new_id(options.get("id"), work.name)
        written: dict[str, JsonValue] = {"id": node_id}
        try:
            written |= {"title": options["title"]} if options.get("title") is not None else {}
            written[work.field] = writer.write(work.value, (work.field,))
            written |= {name: writer.write(each, (name,)) for name, each in fields.items() if each is not None}
            written |= {"arguments": writer.write(arguments, ("arguments",))} if arguments else {}
            rest = {name: value for name, value in options.items() if name not in ("id", "title")}
            written |= written_options(rest, writer)  # type: ignore[arg-type] # the same without two of its keys
        except PlanInvalid as invalid:
            raise PlanInvalid(self._placed(invalid.problems, node_id)) from None
        node = self._checked(written, work, writer, options)
        return written, NodeHandle(node.id, owner=self.owner, schema=_schema_of_result(work, node))

    def _checked(self, written: dict[str, JsonValue], work: Work, writer: JsonWriter, options: NodeOptions) -> Node:
        read = read_nodes([written])
        if read.problems:
            shifted = [replace(each, pointer=each.pointer.removeprefix("/nodes/0")) for each in read.problems]
            raise PlanInvalid(self._placed(shifted, str(written["id"])))
        node = read.nodes[0]
        needs, when = options.get("needs", ()), options.get("when")
        handles = [each for each in needs if isinstance(each, Handle)]
        uses: Uses = {("depends_on", index): HandleUse(each) for index, each in enumerate(handles)}
        problems = [*problems_of_handles(node, {**writer.uses, **uses}, owner=self.owner)]
        if isinstance(when, Operand) and node.when is not None:
            problems += self._problems_of_condition(node.when)
        if work.declaration is not None:
            problems += problems_of_call(work.declaration, node, writer.uses)
        if work.problems is not None:
            problems += work.problems(node)
        if problems:
            raise PlanInvalid(self._placed(problems, node.id))
        return node

    def _problems_of_condition(self, condition: str) -> Iterator[Problem]:
        try:
            parse_condition(condition, self.taken.__contains__)
        except ValueError as error:
            yield Problem("invalid_field", f"when: {error}", pointer("when"))

    def _placed(self, problems: Collection[Problem], node_id: str) -> list[Problem]:
        base = pointer("nodes", self.index)
        return [replace(each, pointer=base + each.pointer, node=node_id) for each in problems]

    def _new_id(self, given: str | None, name: str) -> str:
        if given is None:
            return free_id(name, self.taken)
        if given in self.taken:
            message = f"the id {given!r:.80} is already used"
            raise PlanInvalid([Problem("duplicate_id", message, pointer("nodes", self.index, "id"), given)])
        return given


def free_id(name: str, taken: Collection[str]) -> str:
    """Return a name, with a number appended if the name is taken."""
    count, found = 1, name
    while found in taken:
        count += 1
        found = f"{name}_{count}"
    return found


def _schema_of_result(work: Work, node: Node) -> ValueSchema | None:
    """Return the schema of a node's result; `None` if it is unknown, or if another value may replace the result."""
    tool = work.declaration
    if tool is None or tool.output_schema is None or tool.worker is not None or tool.agent is not None:
        return ValueSchema({"type": "array"}) if node.for_each is not None else None
    is_replaced = not isinstance(node.on_error, str) or node.on_error in _RESULT_CHANGES
    if node.for_each is None:
        return None if is_replaced else ValueSchema(tool.output_schema)
    if is_replaced or node.when is not None:
        return ValueSchema({"type": "array"})
    definitions = {"$defs": tool.output_schema["$defs"]} if "$defs" in tool.output_schema else {}
    return ValueSchema({"type": "array", "items": tool.output_schema, **definitions})
