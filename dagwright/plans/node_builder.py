"""Build a node in the plan format from the arguments of `Plan.add`."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import JsonValue

from dagwright.core.errors import PlanInvalid, Problem, pointer
from dagwright.core.model.tools import ToolDeclaration
from dagwright.core.validation.plan_values import PlanValues
from dagwright.plans.call_checks import at_node, inspect_added
from dagwright.plans.expressions import operands_of
from dagwright.plans.handles import Handle, HandleUse, NodeHandle
from dagwright.plans.node_options import NodeOptions, written_options
from dagwright.plans.node_values import JsonWriter, ValuePath


@dataclass(frozen=True, slots=True)
class Work:
    """Work of a node.

    Args:
        field: `tool`, `agent`, `human` or `plan`.
        value: value of that field.
        name: name from which an ID is derived.
        parameters: of its tool, or inputs of its sub-plan, if they are known.
    """

    field: str
    value: object
    name: str
    parameters: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class NodeBuilder:
    """Builds the next node of a plan.

    Args:
        owner: identity of the plan.
        values: values of the existing nodes; the new node is added to them.
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
            fields: further fields of the node.

        Raises:
            PlanInvalid: a field, an argument or a handle is invalid.
            TypeError: as `written_options`.
        """
        writer = JsonWriter()
        node_id = self._new_id(options.get("id"), work.name)
        document: dict[str, JsonValue] = {"id": node_id}
        try:
            document |= {"title": options["title"]} if options.get("title") is not None else {}
            document[work.field] = writer.write(work.value, (work.field,))
            document |= {name: writer.write(value, (name,)) for name, value in fields.items() if value is not None}
            document |= {"arguments": writer.write(arguments, ("arguments",))} if arguments else {}
            rest = {name: value for name, value in options.items() if name not in ("id", "title")}
            document |= written_options(rest, writer)  # type: ignore[arg-type] # the same without two of its keys
            uses = [*writer.uses, *_uses_of_options(options)]
            inspection, problems = inspect_added(document, uses, owner=self.owner, values=self.values, tools=self.tools)
        except PlanInvalid as invalid:
            raise PlanInvalid(self._with_node_pointers(invalid.problems, node_id)) from None
        if problems:
            raise PlanInvalid(self._with_node_pointers(problems, inspection.node.id))
        schema = self.values.add(inspection.node, tools=inspection.tools, sub_plan=inspection.sub_plan)
        return document, NodeHandle(inspection.node.id, owner=self.owner, schema=schema)

    def _with_node_pointers(self, problems: Collection[Problem], node_id: str) -> list[Problem]:
        base = pointer("nodes", self.index)
        return [replace(problem, pointer=base + problem.pointer, node=node_id) for problem in map(at_node, problems)]

    def _new_id(self, chosen: str | None, name: str) -> str:
        if chosen is None:
            return free_id(name, self.values.results)
        if not isinstance(chosen, str):
            raise TypeError(f"add(): id must be a string, not {chosen!r:.60}")
        if chosen in self.values.results:
            message = f"the id {chosen!r:.80} is already used"
            raise PlanInvalid([Problem("duplicate_id", message, pointer("nodes", self.index, "id"), chosen)])
        return chosen


def _uses_of_options(options: NodeOptions) -> list[tuple[ValuePath, HandleUse]]:
    """Return the handles of a condition and of `needs`, whose written form is a text."""
    needs, when = options.get("needs", ()), options.get("when")
    uses: list[tuple[ValuePath, HandleUse]] = [
        (("depends_on", index), HandleUse(need)) for index, need in enumerate(needs) if isinstance(need, Handle)
    ]
    return [*uses, *((("when",), HandleUse(operand)) for operand in operands_of(when) if isinstance(operand, Handle))]


def free_id(name: str, taken_ids: Collection[str]) -> str:
    """Return a name, with a number appended if the name is taken."""
    count, candidate = 1, name
    while candidate in taken_ids:
        count += 1
        candidate = f"{name}_{count}"
    return candidate
