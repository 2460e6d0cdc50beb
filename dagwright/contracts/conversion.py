"""How values and failures cross Temporal's boundary: the pydantic converter, and failures of anybody's.

A worker in another language, or one that encrypts, may put details into a failure that cannot be read here. The
SDK would raise while it hands the failure to the workflow, before any code of ours, and the run would be stuck.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import DefaultFailureConverter, PayloadConverter


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


data_converter = dataclasses.replace(pydantic_data_converter, failure_converter_class=TolerantFailureConverter)
"""What every client and worker of Dagwright uses."""
