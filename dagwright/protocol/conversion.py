"""Data converter of Dagwright: serialization of values and failures, alone or composed with another converter.

A failure that is encrypted, or that comes from a worker in another language, may have details that cannot be decoded
here. With the default converter, the SDK raises while it passes the failure to the workflow, before any code of
Dagwright runs, and the run is stuck.

The engine requires that a data converter encodes JSON values as `json/plain`, passes `RawValue` unchanged, and never
raises while the SDK decodes a payload or failure for a workflow. A payload codec and an external storage may apply any
reversible encoding: history readers decode payloads first with `decode_payloads`.
"""

import base64
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Self, cast

import pydantic_core
from google.protobuf.message import Message
from temporalio.api.common.v1 import Header, Payload, SearchAttributes
from temporalio.api.failure.v1 import Failure
from temporalio.common import RawValue
from temporalio.contrib.pydantic import PydanticPayloadConverter
from temporalio.converter import (
    CompositePayloadConverter,
    DataConverter,
    DefaultFailureConverter,
    DefaultPayloadConverter,
    FailureConverter,
    PayloadConverter,
    SerializationContext,
)

from dagwright.core.errors import DagwrightError


class ConverterUnusable(DagwrightError, ValueError):
    """The data converter is not usable for runs; choose one that encodes JSON values as `json/plain`."""


class _NullIfUndecodable(PayloadConverter):
    """Payload converter that returns null for undecodable payloads."""

    def __init__(self, inner: PayloadConverter) -> None:
        self._inner = inner

    def to_payloads(self, values: Sequence[Any]) -> list[Payload]:
        return self._inner.to_payloads(values)

    def from_payloads(self, payloads: Sequence[Payload], type_hints: list[type] | None = None) -> list[Any]:
        try:
            return self._inner.from_payloads(payloads, type_hints)
        # The type of the exception depends on the converter. Null can replace the details of a failure, because the
        # failure keeps its message.
        except Exception:
            return [None] * len(payloads)


class _TolerantDetails(FailureConverter):
    """Mix-in of failure converters: details that cannot be decoded are null."""

    def from_failure(self, failure: Failure, payload_converter: PayloadConverter) -> BaseException:
        """Return the exception of a failure."""
        return super().from_failure(failure, _NullIfUndecodable(payload_converter))  # type: ignore[safe-super] # implemented by the other base class


class TolerantFailureConverter(_TolerantDetails, DefaultFailureConverter):
    """Failure converter that ignores undecodable details."""


_CONVERTERS_BY_ENCODING = PydanticPayloadConverter().converters


class _RawIfUndecodable(PayloadConverter):
    """Mix-in of payload converters: if one of several untyped arguments cannot be decoded, all arguments stay raw.

    The SDK decodes the arguments of undeclared signals before any code of Dagwright runs. If the converter raised an
    error there, the SDK would retry the workflow task without end.
    """

    def from_payloads(self, payloads: Sequence[Payload], type_hints: list[type] | None = None) -> list[Any]:
        """Return the values of payloads."""
        try:
            return super().from_payloads(payloads, type_hints)  # type: ignore[safe-super] # implemented by the other base class
        # The type of the exception depends on the converter.
        except Exception:
            if type_hints is not None or len(payloads) < 2:
                raise
            return [RawValue(payload) for payload in payloads]


class TolerantPayloadConverter(_RawIfUndecodable, CompositePayloadConverter):
    """Converter of JSON and pydantic types; see `_RawIfUndecodable`.

    The SDK creates two converters for each workflow task, so their parts are shared.
    """

    def __init__(self) -> None:
        self.converters = _CONVERTERS_BY_ENCODING


class _ContextFreeDataConverter(DataConverter):
    """Data converter that ignores the serialization context.

    The SDK calls `with_context` once for each command, and three times for each payload of the command. Each time, the
    SDK's own method would search for parts that depend on the context: a tenth of the cost of a command.
    """

    def with_context(self, context: SerializationContext) -> Self:  # noqa: ARG002 - the SDK's signature
        return self


data_converter: DataConverter = _ContextFreeDataConverter(
    payload_converter_class=TolerantPayloadConverter,
    failure_converter_class=TolerantFailureConverter,
)
"""Data converter of all clients and workers of Dagwright."""


def compose_converter(converter: DataConverter | None) -> DataConverter:
    """Return a data converter that Dagwright can use and that behaves as `converter`.

    The codec and the external storage of `converter` stay as they are. Its payload and failure converter classes are
    replaced: a default class of the SDK with a class of Dagwright, and any other class with a subclass of itself. The
    new classes no longer raise for payloads and failures that would block a workflow.

    Raises:
        ConverterUnusable: `converter` does not encode JSON values as `json/plain`.
    """
    if converter is None or converter == DataConverter.default or isinstance(converter, _ContextFreeDataConverter):
        return converter if isinstance(converter, _ContextFreeDataConverter) else data_converter
    composed_converter = replace(
        converter,
        payload_converter_class=_tolerant_payloads(converter.payload_converter_class),
        failure_converter_class=_tolerant_failures(converter.failure_converter_class),
    )
    _check_json(composed_converter, name=converter.payload_converter_class.__name__)
    return composed_converter


def _tolerant_payloads(converter_class: type[PayloadConverter]) -> type[PayloadConverter]:
    if converter_class in (DefaultPayloadConverter, PydanticPayloadConverter):
        return TolerantPayloadConverter
    if issubclass(converter_class, _RawIfUndecodable):
        return converter_class

    class _TolerantPayloads(_RawIfUndecodable, converter_class):  # type: ignore[valid-type, misc] # the base class is a variable
        pass

    return _TolerantPayloads


def _tolerant_failures(converter_class: type[FailureConverter]) -> type[FailureConverter]:
    if converter_class is DefaultFailureConverter:
        return TolerantFailureConverter
    if issubclass(converter_class, _TolerantDetails):
        return converter_class

    class _TolerantFailures(_TolerantDetails, converter_class):  # type: ignore[valid-type, misc] # the base class is a variable
        pass

    return _TolerantFailures


_SAMPLES = ({"a": [1, "b", None, True]}, [1.5], "text", 7, False)


def _check_json(converter: DataConverter, *, name: str) -> None:
    for value in _SAMPLES:
        (payload,) = converter.payload_converter.to_payloads([value])
        encoding = payload.metadata.get("encoding", b"")
        if encoding != b"json/plain" or pydantic_core.from_json(payload.data) != value:
            encoding_name = encoding.decode(errors="replace")
            raise ConverterUnusable(
                f"the payload converter {name} encodes {value!r} as {encoding_name!r}; "
                "plans require that JSON values are encoded as 'json/plain'"
            )
    raw_value = RawValue(converter.payload_converter.to_payload(_SAMPLES[0]))
    if converter.payload_converter.to_payloads([raw_value]) != [raw_value.payload]:
        raise ConverterUnusable(f"the payload converter {name} does not pass RawValue unchanged, as plans require")


# Histories.


def without_codec(converter: DataConverter) -> DataConverter:
    """Return a converter for payloads that `decode_payloads` has decoded."""
    has_codec = converter.payload_codec is not None or converter.external_storage is not None
    return replace(converter, payload_codec=None, external_storage=None) if has_codec else converter


async def decode_payloads(message: Message, converter: DataConverter) -> None:
    """Decode all payloads of an API message in place, if the converter has a codec or an external storage.

    Search attributes are never encoded. Headers are decoded by the SDK if a client requests it. A payload that cannot
    be decoded stays unchanged: the code that reads it reports the problem.
    """
    if converter.payload_codec is None and converter.external_storage is None:
        return
    for payload in _payloads_of(message):
        try:
            (value,) = await converter.decode([payload], [RawValue])
        # The type of the exception depends on the codec.
        except Exception:
            continue
        payload.CopyFrom(cast("RawValue", value).payload)


def _payloads_of(message: Message) -> Iterator[Payload]:
    if isinstance(message, Payload):
        yield message
        return
    if isinstance(message, SearchAttributes | Header):
        return
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            messages = [entry for entry in value.values() if isinstance(entry, Message)]
        else:
            messages = [value] if isinstance(value, Message) else list(value)
        for nested_message in messages:
            yield from _payloads_of(nested_message)


def encode_failure(failure: Failure) -> str:
    """Return a failure as text."""
    return base64.b64encode(failure.SerializeToString()).decode()


def decode_failure(encoded: str) -> Failure:
    """Decode the result of `encode_failure`.

    Raises:
        ValueError: the text is not a failure.
    """
    try:
        return Failure.FromString(base64.b64decode(encoded))
    except Exception as error:  # protobuf raises an error of its own, which differs between its implementations
        raise ValueError(f"not a failure: {error!r}") from None
