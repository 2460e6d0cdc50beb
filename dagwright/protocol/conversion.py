"""How values and failures cross Temporal's boundary: the pydantic converter, and failures of anybody's.

A worker in another language, or one that encrypts, may put details into a failure that cannot be read here. The
SDK would raise while it hands the failure to the workflow, before any code of ours, and the run would be stuck.
"""

from collections.abc import Sequence
from typing import Any, Self

from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.common import RawValue
from temporalio.contrib.pydantic import PydanticPayloadConverter
from temporalio.converter import (
    CompositePayloadConverter,
    DataConverter,
    DefaultFailureConverter,
    PayloadConverter,
    SerializationContext,
)


class _Tolerant(PayloadConverter):
    """Reads what can be read; null stands for the rest."""

    def __init__(self, inner: PayloadConverter) -> None:
        self._inner = inner

    def to_payloads(self, values: Sequence[Any]) -> list[Payload]:
        return self._inner.to_payloads(values)

    def from_payloads(self, payloads: Sequence[Payload], type_hints: list[type] | None = None) -> list[Any]:
        try:
            return self._inner.from_payloads(payloads, type_hints)
        # A converter raises whatever its parser raised; the text of the failure counts, not its details.
        except Exception:
            return [None] * len(payloads)


class TolerantFailureConverter(DefaultFailureConverter):
    """Turns every failure into an exception, also one whose details cannot be read."""

    def from_failure(self, failure: Failure, payload_converter: PayloadConverter) -> BaseException:
        """Returns the exception that a failure stands for."""
        return super().from_failure(failure, _Tolerant(payload_converter))


_BY_ENCODING = PydanticPayloadConverter().converters


class TolerantPayloadConverter(CompositePayloadConverter):
    """Hands on as they are several arguments of which one cannot be read.

    The SDK reads what nobody declared before any code of ours sees it, and would do so again and again.
    It also makes two converters for each workflow task, so what they are made of is shared.
    """

    def __init__(self) -> None:
        self.converters = _BY_ENCODING

    def from_payloads(self, payloads: Sequence[Payload], type_hints: list[type] | None = None) -> list[Any]:
        """Returns the values of payloads."""
        try:
            return super().from_payloads(payloads, type_hints)
        # A converter raises whatever its parser raised.
        except Exception:
            if type_hints is not None or len(payloads) < 2:
                raise
            return [RawValue(payload) for payload in payloads]


class _ContextFreeDataConverter(DataConverter):
    """Is the same for every value: nothing of ours looks at where a value goes.

    The SDK asks for the converter of each command and each payload in it, three times over; looking through the parts
    for one that minds is a tenth of what sending a command costs.
    """

    def with_context(self, context: SerializationContext) -> Self:  # noqa: ARG002 - the SDK's signature
        return self


data_converter: DataConverter = _ContextFreeDataConverter(
    payload_converter_class=TolerantPayloadConverter,
    failure_converter_class=TolerantFailureConverter,
)
"""What every client and worker of Dagwright uses."""
