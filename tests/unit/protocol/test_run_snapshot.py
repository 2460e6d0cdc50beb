"""Snapshot that continue-as-new passes to the next execution: the serialized state, packed JSON, and invalid input."""

import base64
import json
import zlib
from typing import Any

import pydantic_core
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagwright.core.boundary.decoding import UNPACKED_LIMIT_BYTES, pack_json, packed_text, unpack
from dagwright.core.expressions.references import Lookup
from dagwright.core.model.states import Attempt
from dagwright.features.run_scheduler import RunScheduler, create_scheduler
from dagwright.protocol.messages import MessageInvalid
from dagwright.protocol.run_input import RunInput, run_input_from_json, run_input_to_json
from dagwright.protocol.run_snapshot import RunSnapshot, SnapshotTooLarge, pieces_of, state_from_text, state_to_text
from dagwright.protocol.scheduler_snapshot import restore_state, state_to_json
from tests.support.plan_building import compiled_plan, node, plan_of, started_scheduler

_PLAN = compiled_plan(plan_of(node("a"), node("m", for_each=["x", "y"], key="{{item}}"), node("b", "a", "m")))
_SNAPSHOT = {"started_at": 1, "notes": [], "omitted_notes": 0}


def _interrupted_scheduler() -> RunScheduler:
    scheduler = started_scheduler(_PLAN, at=1.0, max_in_flight=2)
    scheduler.next_task(1.5)
    scheduler.next_task(1.5)
    scheduler.complete("a", {"n": 2**70}, at=2.0, attempt=Attempt(2, 1.75, "7", {"node_id": "z"}))
    return scheduler


def test_state_has_only_the_differences_from_the_initial_state() -> None:
    items = [["x", "x", {"status": "running", "started_at": 1.5}], ["y", "y", {"status": "ready"}]]
    completed_fields = {"status": "completed", "result": {"n": 2**70}, "started_at": 1.5, "ended_at": 2.0}
    assert state_to_json(_interrupted_scheduler()) == {
        "format": 1,
        "records": [
            {**completed_fields, "attempts": 2, "tool_version": "7", "cached": {"node_id": "z"}},
            {"status": "running", "started_at": 1.5, "items": items},
            None,
        ],
        **{"error": None, "cancelled": False, "is_stopped": False},
    }


def test_input_with_a_snapshot_survives_serialization_inline_or_by_reference() -> None:
    notes = ({"code": "cancel", "node_id": None, "message": "no"},)
    state = state_to_json(_interrupted_scheduler())
    snapshot = RunSnapshot(12.25, state_to_text(state), notes=notes, omitted_notes=3)
    known_entities = {Lookup("Ann", "person"): {"id": "p1"}}
    inline_input = RunInput(
        compiled=_PLAN, scope="root", known_entities=known_entities, is_interactive=False, snapshot=snapshot
    )
    assert state_from_text(snapshot.state) == state
    referencing_input = RunInput(compiled=_PLAN, snapshot=RunSnapshot(12.25, refs=("sha256-a", "sha256-b")))
    for run_input in (inline_input, referencing_input):
        assert run_input_from_json(json.loads(json.dumps(run_input_to_json(run_input)))) == run_input


def test_state_text_is_split_into_pieces_and_limited() -> None:
    text = "0123456789" * 250_000
    pieces = pieces_of(text)
    assert (len(pieces), "".join(pieces)) == (3, text)
    with pytest.raises(SnapshotTooLarge, match="the results in the run's own history have 17 MB"):
        state_to_text({"records": ["x" * 17_000_000]})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no base64",
        base64.b64encode(b"not compressed").decode(),
        base64.b64encode(zlib.compress(b"[1]")).decode(),
        base64.b64encode(zlib.compress(b'{"records": []}')[:-6]).decode(),
    ],
)
def test_error_of_an_invalid_state_text_names_the_previous_execution(text: str) -> None:
    with pytest.raises(ValueError, match="the previous execution"):
        state_from_text(text)


@pytest.mark.parametrize(
    "snapshot",
    [
        *(None, 7, [], {}, _SNAPSHOT),
        *({**_SNAPSHOT, "state": "", **fields} for fields in ({"started_at": "soon"}, {"notes": [1]})),
        *({**_SNAPSHOT, "refs": invalid_refs} for invalid_refs in (["x"] * 65, [1], 1)),
    ],
)
def test_invalid_snapshot_is_rejected_as_an_invalid_message(snapshot: Any) -> None:
    message = {**run_input_to_json(RunInput(compiled=_PLAN)), "snapshot": snapshot}
    with pytest.raises(MessageInvalid, match="invalid snapshot"):
        run_input_from_json(message)


def test_snapshot_without_its_compiled_plan_is_rejected() -> None:
    with pytest.raises(MessageInvalid, match="requires a compiled plan"):
        run_input_from_json({"plan": {"nodes": []}, "snapshot": {"started_at": 1}})


_VALID_STATE = state_to_json(_interrupted_scheduler())


@pytest.mark.parametrize(
    "state",
    [
        [],
        {**_VALID_STATE, "format": 2},
        {**_VALID_STATE, "error": {"what": 1}},
        *({**_VALID_STATE, "records": invalid_records} for invalid_records in (None, _VALID_STATE["records"][:2])),
        *({**_VALID_STATE, "records": [record, None, None]} for record in ({"status": "odd"}, {"items": [["x"]]})),
        {name: field for name, field in _VALID_STATE.items() if name != "is_stopped"},
    ],
)
def test_state_that_does_not_fit_the_plan_or_the_format_is_rejected(state: Any) -> None:
    with pytest.raises(ValueError, match=r"state of the previous execution"):
        restore_state(create_scheduler(_PLAN, {}), state)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
)


_INCOMPLETE = "it cannot be unpacked: it is incomplete, or has over 16,000,000 bytes"


def _packed_value(content: bytes) -> dict[str, str]:
    return {"packed": base64.b64encode(content).decode()}


@settings(deadline=None)
@given(_VALUES)
def test_packed_value_is_unpacked_unchanged(value: Any) -> None:
    assert unpack(pack_json(pydantic_core.to_json(value))) == value


@pytest.mark.parametrize(
    ("packed_value", "error_start"),
    [
        (None, "it is not packed"),
        ({"packed": 1}, "it is not packed"),
        ({"packed": "é"}, "it cannot be unpacked: "),
        (_packed_value(b"no zlib"), "it cannot be unpacked: "),
        (_packed_value(zlib.compress(b"no JSON")), "it cannot be unpacked: "),
        (_packed_value(zlib.compress(b"[NaN]")), "it cannot be unpacked: "),
        (_packed_value(zlib.compress(b"[1]")[:-4]), _INCOMPLETE),
    ],
    ids=["nothing", "number", "no_base64", "no_zlib", "no_json", "nan", "truncated"],
)
def test_invalid_packed_value_is_rejected_with_the_reason(packed_value: Any, error_start: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the message is compared
        unpack(packed_value)
    assert str(error.value).startswith(error_start)


def test_decompression_bomb_is_never_unpacked_completely() -> None:
    bomb = packed_text(b"[" + b" " * UNPACKED_LIMIT_BYTES + b"]")
    assert len(bomb) < 100_000
    with pytest.raises(ValueError, match="has over 16,000,000 bytes"):
        unpack({"packed": bomb})
