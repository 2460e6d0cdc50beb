"""The key of a result that may be used again, and its form in the store."""

from typing import Any

import pytest

from activities.cached_results import CachedResult, from_stored_form, result_key, to_stored_form
from dagwright.contracts.limits import INLINE_VALUE_BYTES
from dagwright.plan.references import Secret
from dagwright.plan.stored import StoredValue, WorkerText
from dagwright.plan.unfilled import holes_of
from dagwright.store import ref_of

CALL: dict[str, Any] = {"arguments": {"a": 1, "b": [True, None]}, "holes": []}
SMALL = CachedResult(b'{"n":1.50}', 1_700_000_000.25, 0.5, "run-1", "sum[x]")
LARGE = CachedResult(b'"' + b"x" * INLINE_VALUE_BYTES + b'"', 1_700_000_000.0, 9.5, "run-1", "big")


def key(tool: str = "t", code: str = "c", **call: Any) -> str | None:
    return result_key(tool, code, **{**CALL, **call})


def stored(ref: str, name: str = "a.result", paths: Any = ()) -> StoredValue:
    return StoredValue(ref=ref, name=name, paths=paths)


def test_calls_whose_objects_have_another_order_have_keys_of_their_own() -> None:
    assert key() != key(arguments={"b": [True, None], "a": 1})
    assert len(key() or "") == 64


@pytest.mark.parametrize(
    "call",
    [
        {"tool": "u"},
        {"code": "d"},
        {"arguments": {}},
        {"arguments": {"a": 1.0, "b": [True, None]}},
        {"arguments": {"a": 1, "b": [1, None]}},
        {"arguments": {"a": "1", "b": [True, None]}},
        {"arguments": {"a": 1, "b": [None, True]}},
        {"holes": holes_of({"a": stored("sha256-1")})},
    ],
)
def test_calls_that_differ_have_other_keys(call: dict[str, Any]) -> None:
    assert key(**call) not in (None, key())


def test_stored_values_count_by_their_reference_and_not_by_what_they_are_called() -> None:
    def of(value: Any) -> str | None:
        return key(holes=holes_of({"a": value}))

    first = stored("sha256-1")
    assert of(first) == of(stored("sha256-1", "z.result"))
    assert of(WorkerText(["x", first])) == of(WorkerText(["x", stored("sha256-1", "z.result")]))
    assert len({of(first), of(stored("sha256-2")), of(stored("sha256-1", paths=(("n",),)))}) == 3


@pytest.mark.parametrize("part", [Secret("TOKEN"), WorkerText(["Bearer ", Secret("TOKEN")])])
def test_call_with_a_secret_has_no_key(part: Any) -> None:
    assert key(holes=holes_of({"a": part if isinstance(part, WorkerText) else WorkerText([part])})) is None


def test_arguments_nested_beyond_measure_have_no_key() -> None:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    assert key(arguments={"a": nested}) is None


@pytest.mark.parametrize("text", ["é\ud800", "\x00"])
def test_any_text_has_a_key(text: str) -> None:
    assert key(arguments={"a": text}) is not None


def test_small_result_is_remembered_whole_and_a_large_one_by_reference() -> None:
    form, large = from_stored_form(to_stored_form(SMALL)), from_stored_form(to_stored_form(LARGE))
    assert (form and form.result, form and form.ref) == (SMALL, None)
    assert large is not None
    assert (large.content, large.ref) == (b"", ref_of(LARGE.content))
    assert large.result.told() == {"made_at": "2023-11-14T22:13:20.000Z", "workflow_id": "run-1", "node": "big"}


@pytest.mark.parametrize(
    "harm",
    [
        lambda form: b"",
        lambda form: form[:-1],
        lambda form: form.replace(b"1.50", b"1.51"),
        lambda form: form.replace(b'"format":1', b'"format":2'),
        lambda form: form.replace(b'"made_at"', b'"other"'),
        lambda form: bytes(len(form)),
        lambda form: b"[]\n" + form,
    ],
)
def test_damaged_form_is_no_result(harm: Any) -> None:
    assert from_stored_form(harm(to_stored_form(SMALL))) is None
