"""Handles: in a plan built in Python, they represent values that exist only when the plan runs.

A handle has a reference (`{{stock.result.left}}`) and the JSON Schema of its value, as far as it is known. In
arguments, including f-strings, a handle becomes its reference; Python operators turn it into a condition.
"""

from dataclasses import replace
from typing import Any, Generic, TypeVar, cast

from dagwright.core.errors import PlanInvalid, Problem
from dagwright.core.expressions.paths import format_path, parse_query
from dagwright.core.expressions.references import Index, Item, Placeholder, Reference, ResultOf
from dagwright.core.expressions.stored_values import Path, Secret
from dagwright.core.model.value_schemas import ALL_TYPES, ANY, INTEGER, PYTHON_NAMES, ValueSchema, format_types
from dagwright.core.validation.plan_values import ERROR, STATUS
from dagwright.plans.expressions import Operand, cel_node, cel_path

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Handle(Operand, Generic[T_co]):
    """A value that a plan has when it runs: a node's result or a part of it, an input, an item, or a secret.

    `handle["field"][0]` is a part of the value. A handle can be used for any argument value, also in lists, objects
    and f-strings. Comparing it returns a condition for `when=`. It has no truth value, and it cannot be iterated:
    pass it to `for_each=` instead.
    """

    __slots__ = ("_input_path", "_list_handle", "_owner", "_reference", "_schema")

    def __init__(
        self,
        reference: Reference,
        *,
        owner: object,
        schema: ValueSchema = ANY,
        list_handle: "Handle[Any] | None" = None,
        input_path: Path = (),
    ) -> None:
        """Create a handle; called by plans.

        Args:
            owner: the plan, compared by identity.
            schema: schema of the value, as far as it is known.
            list_handle: for an item or index, the handle of its list, if it is known.
            input_path: path of a part of an input. Only conditions can read such a part.
        """
        self._reference = reference
        self._owner = owner
        self._schema = schema
        self._list_handle = list_handle
        self._input_path = input_path

    @property
    def _used_handles(self) -> "tuple[Handle[Any]]":
        return (self,)

    @property
    def value(self) -> T_co:
        """This handle with the static type of its value, so that type checkers accept it in place of the value."""
        return cast("T_co", self)

    @property
    def item(self) -> "Handle[Any]":
        """One item of this list, for the arguments of a node whose `for_each=` is this handle."""
        return Handle(Item(), owner=self._owner, schema=self._schema.at((0,)), list_handle=self)

    @property
    def index(self) -> "Handle[int]":
        """Position of the item in this list, from 0, for the arguments of a node whose `for_each=` is this handle."""
        return Handle(Index(), owner=self._owner, schema=INTEGER, list_handle=self)

    def __getitem__(self, step: str | int) -> "Handle[Any]":
        """Return the handle of a part of the value.

        Args:
            step: key of an object, or index into a list; a negative index counts from the end.

        Raises:
            PlanInvalid: the declared type of the value has no such part.
            TypeError: the step is neither a key nor an index, or this value has no parts.
        """
        if isinstance(step, bool) or not isinstance(step, str | int):
            raise TypeError(f"{self!r}[{step!r:.60}]: expected a key or an index; .query() takes an RFC 9535 query")
        part = self._schema.part(step)
        if part is None:
            problem = self._schema.problem_of(step, names=PYTHON_NAMES)
            assert problem is not None
            message = f"{self!r} has no part {step!r:.80}: {problem[0]}"
            raise PlanInvalid([Problem("invalid_reference", message, hint=problem[1])])
        if isinstance(self._reference, Placeholder):
            # A reference to an input, `{{PLACEHOLDER_name}}`, has no path, so the handle records the path.
            path = (*cast("tuple[str | int, ...]", self._input_path), step)
            return Handle(self._reference, owner=self._owner, schema=part, input_path=path)
        return Handle(self._with_step(step), owner=self._owner, schema=part, list_handle=self._list_handle)

    def query(self, query: str) -> "Handle[list[Any]]":
        """Return the handle of a list: the matches of an RFC 9535 query in the value, such as `[*].gross`.

        Raises:
            PlanInvalid: the query is invalid.
            TypeError: this value cannot be queried.
        """
        reference = self._reference
        if not isinstance(reference, ResultOf | Item) or isinstance(reference.path, str):
            raise TypeError(f"{self!r} cannot be queried")
        text = "$" + format_path(reference.path) + query.removeprefix("$")
        try:
            parse_query(text)
        except ValueError as error:
            raise PlanInvalid([Problem("invalid_reference", f"{query!r:.80}: {error}")]) from None
        result_schema = ValueSchema({"type": "array"})
        return Handle(
            replace(reference, path=text), owner=self._owner, schema=result_schema, list_handle=self._list_handle
        )

    def _with_step(self, step: str | int) -> Reference:
        reference = self._reference
        if not isinstance(reference, ResultOf | Item) or isinstance(reference.path, str):
            raise TypeError(f"{self!r} has no parts")
        if isinstance(reference, ResultOf) and reference.field == "status":
            raise TypeError(f"{self!r} is a string and has no parts")
        return replace(reference, path=(*reference.path, step))

    def cel(self) -> str:
        """Return the CEL text with which a condition reads the value.

        Raises:
            TypeError: conditions cannot read the value.
        """
        match self._reference:
            case ResultOf(node_id, field, path):
                return f"{cel_node(node_id)}.{field}{cel_path(path)}"
            case Placeholder(name):
                return "inputs" + cel_path((name, *self._input_path))
            case Item(path):
                return "item" + cel_path(path)
            case Index():
                return "index"
        raise TypeError(f"{self!r} cannot be read by a condition")

    def __str__(self) -> str:
        """Return the reference as text, so that f-strings work.

        Raises:
            TypeError: the value is a part of an input, which only conditions can read.
        """
        if self._input_path:
            raise TypeError(
                f"only conditions can read a part of an input, such as {self!r}; declare an input for the part"
            )
        return f"{{{{{self._reference}}}}}"

    def __format__(self, spec: str) -> str:
        """Return the reference.

        Raises:
            TypeError: a format specification is given, but the value is not known before the plan runs.
        """
        if spec:
            raise TypeError(f"{self!r} cannot be formatted with {spec!r}: its value is not known before the plan runs")
        return str(self)

    def __repr__(self) -> str:
        types = self._schema.types
        suffix = "" if types == ALL_TYPES else f": {format_types(types, PYTHON_NAMES)}"
        return f"<handle {self._reference}{format_path(self._input_path)}{suffix}>"


class NodeHandle(Handle[T_co]):
    """Handle of a node. Used as a value, it is a reference to the result of the node.

    Pass it to `needs=` to add a dependency without a value.
    """

    __slots__ = ("_id",)

    def __init__(self, node_id: str, *, owner: object, schema: ValueSchema = ANY) -> None:
        super().__init__(ResultOf(node_id, "result"), owner=owner, schema=schema)
        self._id = node_id

    @property
    def id(self) -> str:
        """ID of the node."""
        return self._id

    @property
    def status(self) -> Handle[str]:
        """Final status of the node: `completed`, `failed`, `skipped` or `cancelled`."""
        return Handle(ResultOf(self._id, "status"), owner=self._owner, schema=STATUS)

    @property
    def error(self) -> Handle[Any]:
        """Why the node failed: an object with `code` and `message`; null if it did not fail."""
        return Handle(ResultOf(self._id, "error"), owner=self._owner, schema=ERROR)


class HandleUse:
    """A handle found in a value. Through this class, the plan builder reads the private fields of the handle.

    Args:
        handle: handle of any plan.
    """

    __slots__ = ("handle",)

    def __init__(self, handle: Handle[Any]) -> None:
        self.handle = handle

    @property
    def owner(self) -> object:
        """The plan that created the handle, compared by identity."""
        return self.handle._owner

    @property
    def reference(self) -> Reference:
        """Reference to the value."""
        return self.handle._reference

    @property
    def list_handle(self) -> Handle[Any] | None:
        """The handle of the list to which an item or index belongs, if it is known."""
        return self.handle._list_handle

    @property
    def is_secret(self) -> bool:
        """Whether the value is a secret."""
        return isinstance(self.reference, Secret)

    @property
    def differs_per_item(self) -> bool:
        """Whether the value is an item of a `for_each` list or the index of an item, and so differs for each item."""
        return isinstance(self.reference, Item | Index)
