"""Values in the payload store behave like inline values in every operation of a run."""

import json
from typing import Any

import pydantic_core
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from dagwright.core.expressions.hydration import hydrate, secret_names, stored_refs, value_at_paths
from dagwright.core.expressions.paths import MissingValue, get_value, replace_parts
from dagwright.core.expressions.projection import project_value
from dagwright.core.expressions.references import UnresolvedReference, as_text
from dagwright.core.expressions.stored_values import (
    MAX_DECISION_PARTS_BYTES,
    MAX_SMALL_VALUE_BYTES,
    MAX_VALUE_PARTS_BYTES,
    DeferredText,
    Path,
    Projection,
    Secret,
    StoredValue,
    find_value_refs,
    is_inline_value,
    stored_from_json,
    stored_to_json,
)
from dagwright.core.expressions.value_refs import bindings_of, encode, ref_for_display, value_from_json, value_to_json
from tests.support.example_counts import example_count

_NAMES = st.sampled_from(["a", "b", "id", "name", "x y"])
_TEXTS = st.sampled_from(["", "é", "short", "x" * 600, "y" * (MAX_SMALL_VALUE_BYTES + 1), "z" * 40_000])
_LEAVES = st.none() | st.booleans() | st.integers(-9, 9) | _TEXTS
_VALUES = st.recursive(
    _LEAVES, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(_NAMES, inner, max_size=4), max_leaves=20
)
_PATH_STEPS = _NAMES | st.integers(-2, 4)
_QUERIES = st.sampled_from(["$..a", "$..name", "$[*].id", "$[0:2]", "$..[?@.id]"])


@st.composite
def _paths(draw: st.DrawFn, value: Any) -> Path:
    """Return a path that usually exists in the value."""
    if draw(st.integers(0, 9)) == 0:
        return draw(_QUERIES)
    path: tuple[str | int, ...] = ()
    while draw(st.integers(0, 3)):
        if isinstance(value, dict) and value:
            step: str | int = draw(st.sampled_from(sorted(value)))
        elif isinstance(value, list) and value:
            step = draw(st.integers(-len(value), len(value) - 1))
        else:
            break
        path, value = (*path, step), value[step]
    return (*path, draw(_PATH_STEPS)) if draw(st.integers(0, 4)) == 0 else path


def _get_or_error(value: Any, path: Path) -> Any:
    """Return the value at a path, or the arguments of the error if the path does not exist."""
    try:
        return get_value(value, path, name="a.result")
    except MissingValue as error:
        return error.args


def _hydrate(result: Any, value: Any) -> Any:
    """Replace the references in a result by parts of `value`, as a worker does.

    If a part is missing, return the arguments of the error.
    """
    try:
        replacements = [
            (path, value_at_paths(value, part.paths, "a.result"))
            for path, part in find_value_refs(result)
            if isinstance(part, StoredValue)
        ]
    except UnresolvedReference as error:
        return error.args
    return replace_parts(result, replacements) if replacements else result


def _assert_same(actual: Any, expected: Any, value: Any) -> None:
    """Check that two results of `_get_or_error` are the same value, or that both are errors."""
    hydrated_result = _hydrate(actual, value)
    assert isinstance(hydrated_result, tuple) == isinstance(expected, tuple), (hydrated_result, expected)
    assert hydrated_result == expected or isinstance(expected, tuple)


@settings(max_examples=example_count(80), deadline=None)
@given(data=st.data())
def test_path_gives_the_same_result_in_a_stored_value_as_in_the_inline_value(data: st.DataObject) -> None:
    value = data.draw(_VALUES)
    # The use `whole` loads a part even if it is large; with the use `value`, a large part stays in the store.
    projections: list[Projection] = data.draw(
        st.lists(st.tuples(_paths(value), st.sampled_from(["value", "whole"])), max_size=6)
    )
    size = len(pydantic_core.to_json(value))
    result = project_value(value, "sha256-v", size_bytes=size, projections=projections, name="a.result")
    stored_result = stored_from_json(json.loads(json.dumps(stored_to_json(result))), name="a.result")
    assert stored_result == result
    for path in [path for path, _ in projections] + data.draw(st.lists(_paths(value), max_size=4)):
        expected, actual = _get_or_error(value, path), _get_or_error(stored_result, path)
        _assert_same(actual, expected, value)
        if isinstance(actual, tuple):
            assert actual == expected, "a missing part gives the same error as in the complete value"


@settings(max_examples=example_count(100), deadline=None)
@given(data=st.data())
def test_path_gives_the_same_result_in_a_stored_part_as_in_the_inline_part(data: st.DataObject) -> None:
    value = data.draw(_VALUES)
    first_path = data.draw(_paths(value).filter(lambda path: not isinstance(path, str)))
    projections: list[Projection] = data.draw(st.lists(st.tuples(_paths(value), st.just("value")), max_size=6))
    stored_result = project_value(value, "sha256-v", size_bytes=1, projections=projections, name="a.result")
    expected, actual = _get_or_error(value, first_path), _get_or_error(stored_result, first_path)
    assume(not isinstance(expected, tuple))
    second_path = data.draw(_paths(expected))
    _assert_same(_get_or_error(actual, second_path), _get_or_error(expected, second_path), value)


@settings(max_examples=example_count(80), deadline=None)
@given(data=st.data())
def test_size_of_all_projections_is_limited(data: st.DataObject) -> None:
    value = data.draw(_VALUES)
    projections: list[Projection] = data.draw(
        st.lists(st.tuples(_paths(value), st.sampled_from(["value", "whole"])), max_size=30)
    )
    result = project_value(value, "sha256-v", size_bytes=1, projections=projections, name="a.result")
    assert len(json.dumps(stored_to_json(result))) < 2 * (MAX_VALUE_PARTS_BYTES + MAX_DECISION_PARTS_BYTES)
    for part in result.parts.values():
        if part.state == "small":
            assert len(pydantic_core.to_json(part.value)) <= MAX_SMALL_VALUE_BYTES


# Values with parts in the store.

_VALUES_BY_REF = {"sha256-a": {"id": 7, "text": "é"}, "sha256-b": [1, [2, 3]], "sha256-c": "long"}
_PATHS_BY_REF: dict[str, list[Path]] = {
    "sha256-a": [("id",), ("text",)],
    "sha256-b": [(1,), (-1, 0), "$[*]"],
    "sha256-c": [()],
}
_SECRET_VALUES = {"KEY": "hush", "OTHER": "psst"}


@st.composite
def _stored_values(draw: st.DrawFn) -> StoredValue:
    ref = draw(st.sampled_from(sorted(_VALUES_BY_REF)))
    path = draw(st.sampled_from([(), *_PATHS_BY_REF[ref]]))
    return StoredValue(ref, name="n.result", paths=() if path == () else (path,))


_INLINE_VALUES = st.recursive(
    st.none() | st.integers(0, 9) | st.sampled_from(["", "text", "{{a.result}}"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=6,
)
_SECRETS = st.sampled_from([Secret(name) for name in _SECRET_VALUES])


def _nested_values(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    containers = st.lists(inner, min_size=1, max_size=3) | st.dictionaries(_NAMES, inner, min_size=1, max_size=3)
    part = st.sampled_from(["", "Bearer "]) | _SECRETS | _stored_values() | containers
    return (
        containers
        | st.builds(DeferredText, st.lists(part, min_size=2, max_size=4))
        | st.builds(lambda secret: DeferredText([secret]), _SECRETS)
    )


_ARGUMENTS = st.dictionaries(
    _NAMES, st.recursive(_INLINE_VALUES | _stored_values(), _nested_values, max_leaves=8), max_size=4
)


def _fill_in(value: Any) -> Any:
    """Return a value with all stored values, secrets and texts filled in."""
    if isinstance(value, dict):
        return {name: _fill_in(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_fill_in(part) for part in value]
    if isinstance(value, StoredValue):
        return value_at_paths(_VALUES_BY_REF[value.ref], value.paths, value.name)
    if isinstance(value, Secret):
        return _SECRET_VALUES[value.name]
    return "".join(as_text(_fill_in(part)) for part in value.parts) if isinstance(value, DeferredText) else value


@settings(max_examples=example_count(80), deadline=None)
@given(arguments=_ARGUMENTS)
@example(arguments={"a": {"ref": "sha256-a"}})
def test_tool_receives_the_complete_arguments(arguments: dict[str, Any]) -> None:
    # A call is sent with the display form of each stored value and secret. `hydrate` puts the values in their place.
    encoded_arguments, has_bindings = encode(arguments, ref_for_display)
    bindings = json.loads(json.dumps(bindings_of(arguments)))
    received_arguments = pydantic_core.from_json(encoded_arguments)
    assert has_bindings == bool(bindings) == (not is_inline_value(arguments))
    for secret in _SECRET_VALUES.values():
        assert secret.encode() not in encoded_arguments
    assert secret_names(bindings) <= _SECRET_VALUES.keys()
    assert set(stored_refs(bindings)) <= _VALUES_BY_REF.keys()
    hydrate(
        received_arguments,
        bindings,
        secrets=_SECRET_VALUES,
        load=lambda ref, paths, name: value_at_paths(_VALUES_BY_REF[ref], paths, name),
    )
    assert received_arguments == _fill_in(arguments)


@settings(max_examples=example_count(80), deadline=None)
@given(value=_ARGUMENTS | _stored_values())
@example(value={"a": {"ref": "sha256-a", "bytes": 9}})
@example(value={"a": [{"text": "t"}, {"secret": "KEY"}, {"parts": []}]})
def test_value_is_unchanged_after_encoding_and_decoding(value: Any) -> None:
    message = json.loads(json.dumps(value_to_json(value)))
    assert value_from_json(message["value"], message.get("stored")) == value
    assert ("stored" in message) == (not is_inline_value(value))
