"""Schemas of the values that a plan refers to: results of nodes, inputs, items, and the output of a sub-plan."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dagwright.core.expressions.condition_parser import Read
from dagwright.core.expressions.paths import replace_parts
from dagwright.core.expressions.reference_parser import walk_texts
from dagwright.core.expressions.references import Index, Item, Placeholder, Reference, ResultOf, Template
from dagwright.core.expressions.stored_values import Path
from dagwright.core.model.agents import tool_of_agent
from dagwright.core.model.plan import Human, Node, OnErrorValue
from dagwright.core.model.states import NodeStatus
from dagwright.core.model.tools import ToolDeclaration
from dagwright.core.model.value_schemas import ANY, INTEGER, TEXT, ValueSchema
from dagwright.core.validation.checked_plan import CheckedPlan

PartOfValue = tuple[ValueSchema, tuple[str | int, ...]]
"""Schema of a value, and the path of a part of the value."""
_TEXT_OR_NULL = ValueSchema({"type": ["string", "null"]})
STATUS = ValueSchema({"type": "string", "enum": [status.value for status in NodeStatus]})
"""Schema of the status of a node. All statuses are possible, because with a `join` other than `all` a condition may
read the status of a node that has not ended."""
_MAX_LITERALS = 100
"""Longest literal list whose items are read for their types."""
_ERROR_FIELDS = {"code": TEXT, "message": TEXT, "retryable": ValueSchema({"type": "boolean"}), "ref": TEXT}
ERROR = ValueSchema.any_of(ValueSchema.of_object(_ERROR_FIELDS), ValueSchema({"type": "null"}))
"""Schema of the error of a node."""


@dataclass(frozen=True, slots=True)
class PlanValues:
    """Schemas of the values of one plan.

    Args:
        results: node id -> schema of its result.
        inputs: declared input -> its schema.
        producers: node id -> tool that produces the node's result, for nodes without `for_each`.
    """

    results: dict[str, ValueSchema] = field(default_factory=dict)
    inputs: dict[str, ValueSchema] = field(default_factory=dict)
    producers: dict[str, ToolDeclaration] = field(default_factory=dict)

    @classmethod
    def of_plan(cls, checked_plan: CheckedPlan) -> "PlanValues":
        """Return the schemas of the values of a checked plan."""
        schemas = {name: checked_plan.inputs.get(name) for name in checked_plan.plan.inputs}
        values = cls(inputs={name: ValueSchema(schema) for name, schema in schemas.items() if schema})
        for index, node in enumerate(checked_plan.nodes):
            values.add(node, tools=checked_plan.tools, sub_plan=checked_plan.sub_plans.get(index))
        return values

    def add(self, node: Node, *, tools: Mapping[str, ToolDeclaration], sub_plan: CheckedPlan | None) -> ValueSchema:
        """Add the result of a node, and return the schema of the result: `ANY` if two nodes have the same ID."""
        schema = _schema_of_result(node, tools, sub_plan) if node.id not in self.results else ANY
        if isinstance(node.on_error, OnErrorValue):
            schema = ValueSchema.any_of(schema, ValueSchema.of_value(node.on_error.value))
        if node.for_each is not None:
            schema = ValueSchema({"type": "array", "items": schema})
        elif (tool := tools.get(node.tool or "")) is not None:
            self.producers[node.id] = tool
        self.results[node.id] = schema
        return schema

    def of_reference(self, reference: Reference, *, items: ValueSchema = ANY) -> PartOfValue:
        """Return the schema of the value that a reference reads from, and the path of the part that it reads.

        Args:
            items: schema of the items of the node with the reference.
        """
        match reference:
            case ResultOf(node_id, value, path):
                return _part_at(self._of_node(node_id, value), path)
            case Placeholder(name):
                return self.inputs.get(name, ANY), ()
            case Item(path):
                return _part_at(items, path)
            case Index():
                return INTEGER, ()
        return TEXT, ()

    def of_template(self, template: Template, *, items: ValueSchema = ANY) -> ValueSchema:
        """Return the schema of the value of a text with references."""
        if len(template) != 1 or isinstance(template[0], str):
            return TEXT
        schema, path = self.of_reference(template[0], items=items)
        return schema.at(path)

    def of_read(self, read: Read, *, items: ValueSchema = ANY) -> PartOfValue:
        """Return the schema and the path of a read in a condition, like `of_reference`."""
        if read.source == "index":
            return INTEGER, ()
        if read.source == "item":
            return items, read.steps
        if not read.steps:
            return ANY, ()
        name, path = str(read.steps[0]), read.steps[1:]
        if read.source == "inputs":
            return self.inputs.get(name, ANY), path
        return self._of_node(read.node_id, name), path

    def _of_node(self, node_id: str, value: str) -> ValueSchema:
        schemas = {"result": self.results.get(node_id, ANY), "status": STATUS, "error": ERROR}
        return schemas.get(value, ANY)

    def items_of(self, node: Node, template: Template | None) -> ValueSchema:
        """Return the schema of the items of a node.

        Args:
            template: template of its `for_each`.
        """
        if isinstance(node.for_each, list):
            return _schema_of_items(node.for_each)
        return self.of_template(template).at((0,)) if template is not None else ANY


def _part_at(schema: ValueSchema, path: Path) -> PartOfValue:
    """Return a part of a value; if the path is a query, the part is a list."""
    return (ValueSchema({"type": "array"}), ()) if isinstance(path, str) else (schema, path)


def _schema_of_items(literals: Sequence[Any]) -> ValueSchema:
    """Return the schema of the items of a literal list."""
    if not 0 < len(literals) <= _MAX_LITERALS or any(True for _ in walk_texts(literals)):
        return ANY
    return ValueSchema.any_of(*map(ValueSchema.of_value, literals))


def _schema_of_result(node: Node, tools: Mapping[str, ToolDeclaration], sub_plan: CheckedPlan | None) -> ValueSchema:
    if node.human is not None:
        return schema_of_answer(node.human)
    if node.plan is not None:
        return schema_of_output(sub_plan) if sub_plan is not None else ANY
    tool = tool_of_agent(node.agent_name, tools) if node.agent_name else tools.get(node.tool or "")
    if tool is None or tool.worker is not None:
        return ANY
    if tool.agent is not None:
        answer = TEXT if tool.agent.output_schema is None else ValueSchema(tool.agent.output_schema)
        return answer if tool.agent.type == "llm" else ANY
    return ANY if tool.output_schema is None else ValueSchema(tool.output_schema)


def schema_of_answer(human: Human) -> ValueSchema:
    """Return the schema of a person's answer, as `normalize_answer` returns the answer."""
    text = ValueSchema.of_object({"text": TEXT})
    match human.type:
        case "APPROVAL":
            return ValueSchema.of_object({"approved": ValueSchema({"type": "boolean"}), "reason": _TEXT_OR_NULL})
        case "SELECTION":
            options = _schema_of_items(human.options) if isinstance(human.options, list) else ANY
            selection = ValueSchema.of_object({"selected": ValueSchema({"type": "array", "items": options})})
            return ValueSchema.any_of(selection, text) if human.allow_text else selection
        case "INFORMATION":
            return ValueSchema.of_object({"data": ValueSchema(human.answer_schema or {"type": "object"})})
        case "GUIDANCE":
            nodes = ValueSchema({"type": "array", "items": TEXT})
            return ValueSchema.any_of(ValueSchema.of_object({"text": TEXT, "nodes": nodes}), text)
    return text


def schema_of_output(checked_plan: CheckedPlan) -> ValueSchema:
    """Return the schema of the output of a plan.

    If the plan declares no output, the output has the results of the nodes without dependents.
    """
    values = PlanValues.of_plan(checked_plan)
    if checked_plan.plan.output is None and not checked_plan.output_bindings:
        with_dependents = {number for numbers in checked_plan.dependencies for number in numbers}
        final_ids = [node.id for number, node in enumerate(checked_plan.nodes) if number not in with_dependents]
        return ValueSchema.of_object({node_id: values.results[node_id] for node_id in final_ids})
    parts = [(path, values.of_template(template)) for path, template in checked_plan.output_bindings]
    return _compose_schema(replace_parts(checked_plan.plan.output, parts))


def _compose_schema(value: Any) -> ValueSchema:
    """Return the schema of a JSON value in which some parts are schemas."""
    if isinstance(value, ValueSchema):
        return value
    if isinstance(value, Mapping):
        return ValueSchema.of_object({name: _compose_schema(part) for name, part in value.items()})
    if isinstance(value, list):
        return ValueSchema.of_items([_compose_schema(part) for part in value])
    return ValueSchema.of_value(value)
