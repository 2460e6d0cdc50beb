"""JSON form of frozen dataclasses, derived from their fields by pydantic.

The JSON form has the fields in the order of their definition. A class with a different form (derived keys, omitted
defaults, limits on texts) has its own encoder. Nodes and records also have their own encoders, because they are
encoded most often.
"""

from functools import cached_property
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

T = TypeVar("T")


class JsonCodec(Generic[T]):
    """Encoder and decoder of one type.

    The pydantic adapter is built at first use, because building it takes milliseconds.

    Args:
        kind: a frozen dataclass, or a mapping or union of dataclasses.
        name: name of a value, for error messages.
    """

    def __init__(self, kind: Any, *, name: str) -> None:
        self._kind = kind
        self._name = name

    @cached_property
    def _adapter(self) -> TypeAdapter[T]:
        return TypeAdapter(self._kind)

    def encode(self, value: T) -> Any:
        """Return the fields of a value in their order, as JSON."""
        return self._adapter.dump_python(value, mode="json")

    def decode(self, encoded: Any) -> T:
        """Parse the JSON form of a value; unknown keys are ignored.

        Raises:
            ValueError: the form is invalid; the message names the first wrong field.
        """
        try:
            return self._adapter.validate_python(encoded)
        except ValidationError as error:
            first_error = error.errors(include_url=False, include_input=False)[0]
            field = "/".join(map(str, first_error["loc"])) or "value"
            raise ValueError(f"invalid {self._name}: {field}: {first_error['msg']}") from None
