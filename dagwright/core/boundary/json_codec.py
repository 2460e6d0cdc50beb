"""JSON form of frozen dataclasses, derived from their fields by pydantic.

The fields in their order are the form, so a class whose JSON differs from its fields (derived keys, omitted defaults,
limits on texts) writes it out by itself. Hot paths do too: nodes and records have a columnar form.
"""

from functools import cached_property
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

T = TypeVar("T")


class JsonCodec(Generic[T]):
    """Encoder and decoder of one dataclass; pydantic builds it at first use, as that takes milliseconds."""

    def __init__(self, kind: type[T]) -> None:
        self._kind = kind

    @cached_property
    def _adapter(self) -> TypeAdapter[T]:
        return TypeAdapter(self._kind)

    def encode(self, value: T) -> dict[str, Any]:
        """Return the fields of a value in their order, as plain JSON."""
        encoded: dict[str, Any] = self._adapter.dump_python(value, mode="json")
        return encoded

    def decode(self, encoded: Any) -> T:
        """Return the value of its JSON form; unknown keys are ignored.

        Raises:
            ValueError: the form is invalid; the message names the first wrong field.
        """
        try:
            return self._adapter.validate_python(encoded)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            field = "/".join(map(str, first["loc"])) or "value"
            raise ValueError(f"invalid {self._kind.__name__}: {field}: {first['msg']}") from None
