"""Composed data converters, and decoding of payloads with a codec."""

from dataclasses import replace
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.common import RawValue
from temporalio.converter import (
    DataConverter,
    DefaultFailureConverterWithEncodedAttributes,
    DefaultPayloadConverter,
    JSONPlainPayloadConverter,
)
from temporalio.exceptions import ApplicationError

from dagwright.protocol.conversion import (
    ConverterUnusable,
    compose_converter,
    data_converter,
    decode_payloads,
    without_codec,
)
from tests.support.order_shop import XorCodec


class _UserConverter(DefaultPayloadConverter):
    """A user-defined payload converter."""


class _UppercaseConverter(DefaultPayloadConverter):
    """A payload converter that does not encode values as JSON."""

    def to_payloads(self, values: Any) -> list[Payload]:
        return [Payload(metadata={"encoding": b"text/loud"}, data=str(value).upper().encode()) for value in values]


def test_composed_converter_keeps_the_parts_of_a_user_converter() -> None:
    codec = XorCodec()
    failure_class = DefaultFailureConverterWithEncodedAttributes
    converter = DataConverter(_UserConverter, payload_codec=codec, failure_converter_class=failure_class)
    composed_converter = compose_converter(converter)
    assert composed_converter.payload_codec is codec
    assert issubclass(composed_converter.payload_converter_class, _UserConverter)
    assert issubclass(composed_converter.failure_converter_class, failure_class)
    assert compose_converter(composed_converter).payload_converter_class is composed_converter.payload_converter_class
    unreadable_payloads = [Payload(metadata={"encoding": b"json/plain"}, data=b"{")] * 2
    values = composed_converter.payload_converter.from_payloads(unreadable_payloads)
    assert values == [RawValue(payload) for payload in unreadable_payloads]


def test_default_converter_is_replaced_by_the_dagwright_converter() -> None:
    assert compose_converter(None) is compose_converter(DataConverter.default) is data_converter


def test_converter_without_json_is_rejected() -> None:
    with pytest.raises(ConverterUnusable, match=r"_UppercaseConverter encodes .* as 'text/loud'"):
        compose_converter(replace(DataConverter.default, payload_converter_class=_UppercaseConverter))


async def test_payloads_and_failures_of_an_event_are_decoded() -> None:
    converter = compose_converter(replace(DataConverter.default, payload_codec=XorCodec()))
    event = HistoryEvent(event_type=EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED)
    failure = event.activity_task_failed_event_attributes.failure
    await converter.encode_failure(ApplicationError("no", {"a": 1}), failure)
    event.user_metadata.summary.CopyFrom((await converter.encode(["deadline"]))[0])
    await decode_payloads(event, converter)
    assert event.user_metadata.summary == JSONPlainPayloadConverter().to_payload("deadline")
    error = await without_codec(converter).decode_failure(failure)
    assert isinstance(error, ApplicationError)
    assert error.details == ({"a": 1},)
