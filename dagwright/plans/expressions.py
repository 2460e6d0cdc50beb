"""Conditions written with Python operators: `lamps["left"] < 10` becomes the CEL text of a `when`.

Nothing is evaluated here: an operator returns a new object with a CEL text.
"""

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import NoReturn

from dagwright.core.errors import PlanInvalid, Problem
from dagwright.core.expressions.stored_values import Path
from dagwright.core.model.value_schemas import (
    INTEGER,
    PYTHON_NAMES,
    JsonTypes,
    ValueSchema,
    format_types,
    never_equal_problem,
)

BOOLEAN = ValueSchema({"type": "boolean"})
_BOOLEAN_TYPES: JsonTypes = frozenset({"boolean"})
_TEXT_TYPES: JsonTypes = frozenset({"string"})
_NUMBER_TYPES: JsonTypes = frozenset({"number"})
_ADDABLE_TYPES: JsonTypes = frozenset({"number", "string", "array"})
_ORDERED_TYPES: JsonTypes = frozenset({"number", "string", "boolean"})
_SIZED_TYPES: JsonTypes = frozenset({"string", "array", "object"})
_CONTAINER_TYPES: JsonTypes = frozenset({"array", "object"})
_INTEGER_LIMIT = 2**63
_RESERVED_NAMES = frozenset(
    ("as", "break", "const", "continue", "else", "false", "for", "function", "has", "if", "import", "in", "index",
     "inputs", "item", "let", "loop", "namespace", "nodes", "null", "package", "return", "size", "true", "var", "void",
     "while")
)  # fmt: skip
"""Words that CEL or a condition does not read as the ID of a node."""


class Operand(ABC):
    """A value of a condition: a handle of a result or an input (`plans.handles`), or an expression of such handles."""

    __slots__ = ()

    _schema: ValueSchema
    """Schema of the value, as far as it is known."""

    @property
    @abstractmethod
    def _used_handles(self) -> "tuple[Operand, ...]":
        """The handles in the expression; for a handle, the handle itself."""

    @abstractmethod
    def cel(self) -> str:
        """Return the text of the value in CEL. Compound expressions are in parentheses."""

    def __lt__(self, other: object) -> "Condition":
        """Return a condition that is evaluated when the plan runs."""
        return _compare(self, "<", other)

    def __le__(self, other: object) -> "Condition":
        """Return a condition that is evaluated when the plan runs."""
        return _compare(self, "<=", other)

    def __gt__(self, other: object) -> "Condition":
        """Return a condition that is evaluated when the plan runs."""
        return _compare(self, ">", other)

    def __ge__(self, other: object) -> "Condition":
        """Return a condition that is evaluated when the plan runs."""
        return _compare(self, ">=", other)

    def __eq__(self, other: object) -> "Condition":  # type: ignore[override] # a condition, as in SQLAlchemy
        """Return a condition that is evaluated when the plan runs."""
        return _compare(self, "==", other)

    def __ne__(self, other: object) -> "Condition":  # type: ignore[override] # a condition, as in SQLAlchemy
        """Return a condition that is evaluated when the plan runs."""
        return _compare(self, "!=", other)

    __hash__ = object.__hash__

    def __add__(self, other: object) -> "Expression":
        """Add when the plan runs."""
        return _compute(self, "+", other)

    def __radd__(self, other: object) -> "Expression":
        """Add when the plan runs."""
        return _compute(other, "+", self)

    def __sub__(self, other: object) -> "Expression":
        """Subtract when the plan runs."""
        return _compute(self, "-", other)

    def __rsub__(self, other: object) -> "Expression":
        """Subtract when the plan runs."""
        return _compute(other, "-", self)

    def __mul__(self, other: object) -> "Expression":
        """Multiply when the plan runs."""
        return _compute(self, "*", other)

    def __rmul__(self, other: object) -> "Expression":
        """Multiply when the plan runs."""
        return _compute(other, "*", self)

    def __truediv__(self, other: object) -> "Expression":
        """Divide when the plan runs. In CEL, the quotient of two integers is an integer, rounded toward zero."""
        return _compute(self, "/", other)

    def __mod__(self, other: object) -> "Expression":
        """Compute the remainder when the plan runs."""
        return _compute(self, "%", other)

    def __and__(self, other: "Operand") -> "Condition":
        """Return a condition that is true if both operands are true."""
        return _combine(self, "&&", other)

    def __or__(self, other: "Operand") -> "Condition":
        """Return a condition that is true if at least one operand is true."""
        return _combine(self, "||", other)

    def __invert__(self) -> "Condition":
        """Return the negated condition."""
        _require(self, _BOOLEAN_TYPES, "~")
        return Condition(f"!{self.cel()}", is_atom=True, operands=(self,))

    def is_in(self, values: object) -> "Condition":
        """Return a condition that is true if the value is an item of a list or a key of an object."""
        return _compare(self, "in", values)

    def contains(self, value: object) -> "Condition":
        """Return a condition that is true if the value, a list or an object, has this item or key."""
        return _compare(value, "in", self)

    def contains_text(self, text: str) -> "Condition":
        """Return a condition that is true if the value, a string, contains this text."""
        return self._call("contains", text)

    def starts_with(self, text: str) -> "Condition":
        """Return a condition that is true if the value, a string, starts with this text."""
        return self._call("startsWith", text)

    def ends_with(self, text: str) -> "Condition":
        """Return a condition that is true if the value, a string, ends with this text."""
        return self._call("endsWith", text)

    def matches(self, pattern: str) -> "Condition":
        """Return a condition that is true if a part of the value, a string, matches this RE2 pattern."""
        return self._call("matches", pattern)

    def _call(self, function: str, text: object) -> "Condition":
        _require(self, _TEXT_TYPES, f"{function}()")
        _require(text, _TEXT_TYPES, f"{function}()")
        return Condition(f"{self.cel()}.{function}({cel_of(text)})", is_atom=True, operands=(self, text))

    def size(self) -> "Expression":
        """Return the length of a string, a list or an object."""
        _require(self, _SIZED_TYPES, "size()")
        return Expression(f"size({self.cel()})", is_atom=True, schema=INTEGER, operands=(self,))

    def exists(self) -> "Condition":
        """Return a condition that is true if the value exists: CEL's `has()`."""
        return Condition(f"has({self.cel()})", is_atom=True, operands=(self,))

    def __bool__(self) -> NoReturn:
        """Reject the use as a truth value.

        Raises:
            TypeError: always.
        """
        raise TypeError(
            f"{self!r} has no value before the plan runs, so it is neither true nor false; "
            "combine conditions with & | ~ instead of and, or, not, and give them to when="
        )

    def __iter__(self) -> NoReturn:
        """Reject iteration.

        Raises:
            TypeError: always.
        """
        raise TypeError(f"{self!r} has no items before the plan runs; give it to for_each= to run a node for each item")

    def __contains__(self, other: object) -> NoReturn:
        """Reject `in`, whose result Python converts to a truth value.

        Raises:
            TypeError: always.
        """
        raise TypeError(f"{self!r} has no value before the plan runs; write .contains(value) or .is_in(values)")

    def __len__(self) -> NoReturn:
        """Reject `len()`.

        Raises:
            TypeError: always.
        """
        raise TypeError(f"{self!r} has no length before the plan runs; write .size() in a condition")


class Expression(Operand):
    """A value that a condition computes, such as `lamps["left"] + 1`; valid in conditions only."""

    __slots__ = ("_handles", "_is_atom", "_schema", "_text")

    def __init__(
        self, text: str, *, is_atom: bool = False, schema: ValueSchema = BOOLEAN, operands: Iterable[object] = ()
    ) -> None:
        self._text = text
        self._is_atom = is_atom
        self._schema = schema
        self._handles = tuple(chain.from_iterable(map(handles_of, operands)))

    @property
    def _used_handles(self) -> tuple[Operand, ...]:
        return self._handles

    def cel(self) -> str:
        """Return the text in CEL, in parentheses if it is compound."""
        return self._text if self._is_atom else f"({self._text})"

    def __str__(self) -> str:
        """Return the text in CEL."""
        return self._text

    def __repr__(self) -> str:
        return f"<{type(self).__name__.lower()} {self._text}>"


class Condition(Expression):
    """A condition for `when`: evaluated when the plan runs."""

    __slots__ = ()


def _compare(left: object, operator: str, right: object) -> Condition:
    text = f"{cel_of(left)} {operator} {cel_of(right)}"
    if operator == "in":
        _check_membership(left, right)
    elif left is not None and right is not None:
        _check_comparison(left, operator, right)
    return Condition(text, operands=(left, right))


def _check_comparison(left: object, operator: str, right: object) -> None:
    left_schema, right_schema = schema_of(left), schema_of(right)
    common_types = _comparable_types(left_schema) & _comparable_types(right_schema)
    if not (common_types if operator in ("==", "!=") else common_types & _ORDERED_TYPES):
        raise TypeError(
            f"{left!r:.80} {operator} {right!r:.80}: "
            f"{format_types(left_schema.types, PYTHON_NAMES)} cannot be compared with "
            f"{format_types(right_schema.types, PYTHON_NAMES)}"
        )
    _check_constants(left, right)


def _check_constants(left: object, right: object) -> None:
    """Reject the comparison of an enumerated value with a constant that is not in the enumeration."""
    left_constants, right_constants = schema_of(left).constants, schema_of(right).constants
    if (
        left_constants is None
        or right_constants is None
        or any(constant in right_constants for constant in left_constants)
    ):
        return
    operand, value, allowed_values = (
        (left, right, left_constants) if isinstance(left, Operand) else (right, left, right_constants)
    )
    message, hint = never_equal_problem(f"{operand!r:.80}", value, allowed_values)
    raise PlanInvalid([Problem("invalid_field", message, hint=hint)])


def _check_membership(value: object, values: object) -> None:
    _require(values, _CONTAINER_TYPES, "in")
    container_schema, value_schema = schema_of(values), schema_of(value)
    if "array" not in container_schema.types:
        if not value_schema.types & _TEXT_TYPES:
            type_name = format_types(value_schema.types, PYTHON_NAMES)
            raise TypeError(f"{value!r:.80} is {type_name}, and the keys of a dict are str")
        return
    literals = list(values) if isinstance(values, list | tuple | set | frozenset) else None
    item_schemas = [container_schema.at((0,))] if literals is None else [schema_of(literal) for literal in literals]
    if (
        item_schemas
        and "object" not in container_schema.types
        and not any(_comparable_types(value_schema) & _comparable_types(schema) for schema in item_schemas)
    ):
        types = format_types(frozenset().union(*(schema.types for schema in item_schemas)), PYTHON_NAMES)
        raise TypeError(
            f"{value!r:.80} is {format_types(value_schema.types, PYTHON_NAMES)}, and {values!r:.80} has {types}"
        )
    for literal in literals or ():
        _check_constants(value, literal)


def _compute(left: object, operator: str, right: object) -> Expression:
    text = f"{cel_of(left)} {operator} {cel_of(right)}"
    left_schema, right_schema = schema_of(left), schema_of(right)
    common_types = (
        _comparable_types(left_schema)
        & _comparable_types(right_schema)
        & (_ADDABLE_TYPES if operator == "+" else _NUMBER_TYPES)
    )
    if not common_types:
        type_names = [format_types(schema.types, PYTHON_NAMES) for schema in (left_schema, right_schema)]
        raise TypeError(
            f"{left!r:.80} {operator} {right!r:.80}: {operator} does not take {type_names[0]} and {type_names[1]}"
        )
    return Expression(text, schema=ValueSchema({"type": sorted(common_types)}), operands=(left, right))


def _combine(left: Operand, operator: str, right: Operand) -> Condition:
    if not isinstance(right, Operand):
        raise TypeError(
            f"{right!r} is not a condition; in Python, & and | bind tighter than <, so write (a < b) & (c > d)"
        )
    for operand in (left, right):
        _require(operand, _BOOLEAN_TYPES, operator[0])
    return Condition(f"{left.cel()} {operator} {right.cel()}", operands=(left, right))


def handles_of(value: object) -> tuple[Operand, ...]:
    """Return the handles (`plans.handles`) that a value of a condition contains; none for a Python constant."""
    return value._used_handles if isinstance(value, Operand) else ()


def schema_of(value: object) -> ValueSchema:
    """Return the schema of a value of a condition, as far as it is known."""
    if isinstance(value, Operand):
        return value._schema
    return ValueSchema.of_value(list(value) if isinstance(value, set | frozenset) else value)


def _comparable_types(schema: ValueSchema) -> JsonTypes:
    """Return the types of a value, with one type for all numbers."""
    return frozenset("number" if type_name == "integer" else type_name for type_name in schema.types)


def _require(value: object, accepted_types: JsonTypes, operator: str) -> None:
    """Reject a value whose type an operator or method does not accept.

    Raises:
        TypeError: the value has another type.
    """
    types = schema_of(value).types
    if not types & accepted_types:
        actual, expected = format_types(types, PYTHON_NAMES), format_types(accepted_types, PYTHON_NAMES)
        raise TypeError(f"{value!r:.80} is {actual}, and {operator} takes {expected}")


def cel_of(value: object) -> str:
    """Return the text of a Python value in CEL.

    Raises:
        TypeError: CEL has no such value.
    """
    if isinstance(value, Operand):
        return value.cel()
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, int) and -_INTEGER_LIMIT <= value < _INTEGER_LIMIT:
        return str(int(value))
    if isinstance(value, float) and math.isfinite(value):
        return repr(float(value))
    if isinstance(value, list | tuple | set | frozenset):
        items = sorted(value, key=repr) if isinstance(value, set | frozenset) else value
        return f"[{', '.join(map(cel_of, items))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{cel_of(key)}: {cel_of(item)}' for key, item in value.items())}}}"
    raise TypeError(f"a condition cannot contain {value!r:.80}: expected a handle or {_SUPPORTED_VALUES}")


_SUPPORTED_VALUES = (
    "null, a boolean, a string, an integer of 64 bits, a finite number, a list or an object of such values"
)


def cel_node(node_id: str) -> str:
    """Return the reference to a node in a condition."""
    return node_id if _is_name(node_id) else f"nodes[{cel_of(node_id)}]"


def cel_path(path: Path) -> str:
    """Return the text of a path in a condition.

    Raises:
        TypeError: the path is a query or has a negative index.
    """
    if isinstance(path, str):
        raise TypeError(f"a condition cannot search with the query {path[1:]!r}; let a tool compute the value")
    return "".join(map(_cel_step, path))


def _cel_step(step: str | int) -> str:
    if isinstance(step, str):
        return f".{step}" if _is_name(step) else f"[{cel_of(step)}]"
    if step < 0:
        raise TypeError(f"a condition cannot read the item [{step}]: only indexes from 0")
    return f"[{step}]"


def _is_name(text: str) -> bool:
    return text.isascii() and text.isidentifier() and text not in _RESERVED_NAMES
