"""Checks of the values that a node reads: missing parts, and types that the argument does not accept."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from dagwright.core.expressions.condition_parser import Read, parse_checked_condition
from dagwright.core.expressions.paths import format_path
from dagwright.core.expressions.references import Item, Placeholder, Reference, ResultOf, Template
from dagwright.core.model.compiled import Binding
from dagwright.core.model.plan import Node
from dagwright.core.model.tools import ToolDeclaration
from dagwright.core.model.value_schemas import (
    ANY,
    JsonTypes,
    TypeNames,
    ValueSchema,
    find_mismatch,
    format_types,
    never_equal_problem,
)
from dagwright.core.name_hints import HintBudget
from dagwright.core.validation.checked_plan import CheckedPlan, NodeReferences
from dagwright.core.validation.plan_values import PlanValues

_LIST_OR_NULL: JsonTypes = frozenset({"array", "null"})
"""A node whose `for_each` is null is skipped."""
_NULL = ValueSchema({"type": "null"})
_TYPE_HINT = "refer to a part of the result that has this type, or convert the result with a tool in between"


class ValueProblem(NamedTuple):
    """A problem of a value, with the path of its target in the node or the plan."""

    code: str
    message: str
    at: tuple[str | int, ...]
    hint: str | None


class _Target(NamedTuple):
    """A place where a value is used: its path, its name in messages (`owner`), and the schema of accepted values."""

    at: tuple[str | int, ...]
    owner: str
    expected: ValueSchema
    is_strict: bool


@dataclass(frozen=True, slots=True)
class ValueChecks:
    """Checks of the values of one plan.

    Args:
        values: schemas of the values that nodes read.
        type_names: names of types in messages.
        hint_budget: budget for the hints of the check.
        is_strict: whether a tool accepts only the types of its parameters, not the types that pydantic can convert.
    """

    values: PlanValues
    hint_budget: HintBudget
    type_names: TypeNames
    is_strict: bool = False

    def problems_of(
        self, node: Node, references: NodeReferences, *, tool: ToolDeclaration | None, sub_plan: CheckedPlan | None
    ) -> Iterator[ValueProblem]:
        """Yield the problems of the values that a node reads.

        Args:
            tool: tool of the node, if it is known.
            sub_plan: sub-plan of the node, if the node has a valid sub-plan.
        """
        items = self.values.items_of(node, references.for_each)
        for at, template in _templates(references):
            yield from self._problems_of_template(at, template, items)
        yield from self._problems_of_condition(node, items)
        for path, template in references.argument_bindings:
            if (target := self._target_of_argument(path, tool, sub_plan)) is not None:
                # If the join is not `all`, a node may read the result of a skipped node, which is null.
                value_schema = self.values.of_template(template, items=items)
                value_schema = value_schema if node.join == "all" else ValueSchema.any_of(value_schema, _NULL)
                yield from self._problems_of_type(target, template, value_schema)
        if references.for_each is not None:
            yield from self._problems_of_list(("for_each",), references.for_each, ANY)
        for path, template in references.human_bindings:
            if path == ("options",):
                yield from self._problems_of_list(("human", "options"), template, items)

    def problems_of_output(self, bindings: Sequence[Binding]) -> Iterator[ValueProblem]:
        """Yield the problems of the output of the plan."""
        for path, template in bindings:
            yield from self._problems_of_template(("output", *path), template, ANY)

    # Parts.

    def _problems_of_template(
        self, at: tuple[str | int, ...], template: Template, items: ValueSchema
    ) -> Iterator[ValueProblem]:
        for part in template:
            if isinstance(part, ResultOf | Item) and part.path and not isinstance(part.path, str):
                schema, path = self.values.of_reference(part, items=items)
                yield from self._problems_of_path(at, str(replace(part, path=())), schema, path)

    def _problems_of_path(
        self, at: tuple[str | int, ...], root_text: str, schema: ValueSchema, path: Sequence[str | int]
    ) -> Iterator[ValueProblem]:
        for index, step in enumerate(path):
            if schema is ANY:
                return
            part = schema.part(step)
            if part is None:
                problem = schema.problem_of(step, names=self.type_names, hint_budget=self.hint_budget)
                assert problem is not None
                message = f"{root_text}{format_path(tuple(path[:index]))} has no part {step!r:.80}: {problem[0]}"
                yield ValueProblem("invalid_reference", message, at, problem[1])
                return
            schema = part

    def _problems_of_condition(self, node: Node, items: ValueSchema) -> Iterator[ValueProblem]:
        if node.when is None:
            return
        try:
            analysis = parse_checked_condition(node.when, self.values.results.__contains__).analysis
        except ValueError:
            return
        for read in analysis.reads:
            schema, path = self.values.of_read(read, items=items)
            if read.aspect != "presence":
                root_text = {"nodes": f"{read.node_id}.", "inputs": "inputs."}.get(read.source, read.source)
                root_text += str(read.steps[0]) if read.steps and read.source in ("nodes", "inputs") else ""
                yield from self._problems_of_path(("when",), root_text, schema, path)
            value = schema.at(path)
            is_whole_condition = read.aspect == "value" and analysis.program.strip() == read.variable
            if is_whole_condition and "boolean" not in value.types:
                message = f"when: {node.when} is {format_types(value.types, self.type_names)}, and not a condition"
                yield ValueProblem("invalid_field", message, ("when",), hint_of_condition(node.when, value))
            yield from self._problems_of_comparisons(read, value)

    def _problems_of_comparisons(self, read: Read, value: ValueSchema) -> Iterator[ValueProblem]:
        """Yield a problem for each comparison with a text that is not among the constants of the value."""
        constants = value.constants if read.compared_texts else None
        if constants is None:
            return
        operand_text = f"when: {read.node_id or read.source}{format_path(read.steps)}"
        for text in read.compared_texts:
            if text not in constants:
                message, hint = never_equal_problem(operand_text, text, constants, hint_budget=self.hint_budget)
                yield ValueProblem("invalid_field", message, ("when",), hint)

    # Types.

    def _target_of_argument(
        self, path: tuple[str | int, ...], tool: ToolDeclaration | None, sub_plan: CheckedPlan | None
    ) -> _Target | None:
        """Return the target of an argument; `None` if it accepts any value, or if the tool may convert the value."""
        if sub_plan is not None and (schema := sub_plan.inputs.get(str(path[0]))):
            owner = f"the sub-plan's input {path[0]!r}"
            return _Target(("arguments", *path), owner, ValueSchema(schema).at(path[1:]), is_strict=True)
        if tool is None or tool.input_schema is None:
            return None
        if not self.is_strict and path[0] not in tool.plain_parameters:
            return None
        owner = f"{path[0]!r} of {tool.name!r}"
        expected = ValueSchema(tool.input_schema).at(path)
        return _Target(("arguments", *path), owner, expected, is_strict=self.is_strict)

    def _problems_of_type(
        self, target: _Target, template: Template, value_schema: ValueSchema
    ) -> Iterator[ValueProblem]:
        if value_schema is ANY or target.expected is ANY:
            return
        accepted_types = target.expected.types if target.is_strict else target.expected.accepted_types
        if not value_schema.types & accepted_types:
            text, hint = self._describe(template, value_schema.types)
            message = f"{text}, and {target.owner} takes {format_types(accepted_types, self.type_names)}"
            yield ValueProblem("invalid_arguments", message, target.at, hint)
        elif target.is_strict and (mismatch := find_mismatch(value_schema, target.expected)) is not None:
            (*path, last_step), kind = mismatch
            part_text = format_path((*path, last_step))
            reference_text = f"{{{{{template[0]}}}}}"
            if kind == "missing":
                message = f"{reference_text} has no {part_text.lstrip('.')}, which {target.owner} needs"
            else:
                types = [
                    format_types(schema.at((*path, last_step)).types, self.type_names)
                    for schema in (value_schema, target.expected)
                ]
                message = (
                    f"{reference_text}{part_text} is {types[0]}, and {part_text.lstrip('.')} in {target.owner} is "
                    f"{types[1]}"
                )
            yield ValueProblem("invalid_arguments", message, target.at, _TYPE_HINT)

    def _problems_of_list(
        self, at: tuple[str | int, ...], template: Template, items: ValueSchema
    ) -> Iterator[ValueProblem]:
        types = self.values.of_template(template, items=items).types
        if not types & _LIST_OR_NULL:
            text, hint = self._describe(template, types)
            yield ValueProblem("invalid_field", f"{text}, and {at[-1]} takes a list", at, hint)

    def _describe(self, template: Template, types: JsonTypes) -> tuple[str, str]:
        """Return a description of a value whose type is not accepted, and a hint."""
        part, type_text = template[0], format_types(types, self.type_names)
        if len(template) > 1 or isinstance(part, str):
            return f"a text with references is {type_text}", "give the reference alone, without text around it"
        if isinstance(part, Placeholder):
            hint = f"declare the input with another type, or do not use {part.name!r} here"
            return f"{{{{{part}}}}} is declared as {type_text}", hint
        return self._describe_part(part, type_text)

    def _describe_part(self, part: Reference, type_text: str) -> tuple[str, str]:
        text, hint = f"{{{{{part}}}}} is {type_text}", _TYPE_HINT
        producer = (
            self.values.producers.get(part.node_id) if isinstance(part, ResultOf) and part.field == "result" else None
        )
        if producer is not None and not (isinstance(part, ResultOf) and isinstance(part.path, str)):
            text += f", as the tool {producer.name!r} declares its result"
            hint += f"; if {producer.name!r} returns another type, correct its return annotation"
        return text, hint


def hint_of_condition(text: str, value: ValueSchema) -> str:
    """Return a hint for a condition whose value is not boolean."""
    parts = [name for name in value.properties if "boolean" in value.at((name,)).types]
    return f"name a part of it, such as {text}.{parts[0]}" if parts else f"compare it, such as {text} == 1"


def _templates(references: NodeReferences) -> Iterator[tuple[tuple[str | int, ...], Template]]:
    """Yield the path and the template of each text with references in a node."""
    bindings = {
        "arguments": references.argument_bindings,
        "for_each": references.item_bindings,
        "human": references.human_bindings,
        "approval": references.approval_bindings,
    }
    for name, field_bindings in bindings.items():
        for path, template in field_bindings:
            yield (name, *path), template
    texts = {"objective": references.objective, "for_each": references.for_each, "key": references.key}
    for name, text_template in texts.items():
        if text_template is not None:
            yield (name,), text_template
