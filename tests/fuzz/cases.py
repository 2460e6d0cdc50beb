"""A case: the start of a run and the messages to it, as plain JSON, so that it can be saved and run again."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from hypothesis import strategies as st
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue

from tests.fuzz.plans import plans
from tests.fuzz.values import BOUNDARY_NUMBERS, chance, ids, json_values, odd_values, rarely

DEADLINE = "4s"
"""Deadline of every run, so that a delay or a timeout of hours ends with it."""

_ACTS = ("cancel", "pause", "resume", "set_limits", "set_policy", "cancel_node", "retry_node", "add_nodes")
_SIGNALS = (*_ACTS, "sub_plan_ended", "feedback", "submit_feedback", "nobody_knows", "x" * 1_000)
_UPDATES = (*_ACTS, "submit_feedback", "nobody_knows")
_QUERIES = ("status", "pending_feedback", "node", "graph", "nobody_knows", "__stack_trace")
_STATUSES = ("completed", "failed", "cancelled", "running", "forged", "completed_with_failures")


@dataclass(frozen=True)
class Message:
    """A message to an open run.

    Args:
        kind: `signal`, `update`, `query` or `cancel`, which is Temporal's own.
        payloads: `{"json": value}`, or `{"encoding", "data"}` with each byte as a character.
    """

    kind: str
    name: str
    payloads: list[dict[str, Any]]
    after_ms: int


@dataclass(frozen=True)
class Case:
    """One run.

    Args:
        form: how it is started: `client` as the command line does, `raw` with the plan as it was written, `compiled`
            with a compiled plan in which things were put out of place, `payloads` with anything at all.
        content: the plan; for `compiled` `{"plan", "changes": [[place, value]]}`; for `payloads` a list of payloads.
        fields: beside the plan in the message: inputs, context, options and what does not belong there.
    """

    form: str
    content: Any
    fields: dict[str, Any]
    messages: list[Message]
    workflow_cache: bool = True

    def to_text(self) -> str:
        """Return the case as JSON; lone surrogates and NaN survive."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_text(cls, text: str) -> "Case":
        """Return the case of a JSON text."""
        found = json.loads(text)
        return cls(**{**found, "messages": [Message(**message) for message in found["messages"]]})


def payload_of(described: Mapping[str, Any]) -> RawValue:
    """Return a payload from its description in a case."""
    if "json" in described:
        return json_payload(described["json"])
    metadata = {} if described["encoding"] is None else {"encoding": described["encoding"].encode()}
    return RawValue(Payload(metadata=metadata, data=described["data"].encode("latin-1")))


def json_payload(value: Any) -> RawValue:
    """Return a value as a JSON payload, encoded as a careless program would do it."""
    return RawValue(Payload(metadata={"encoding": b"json/plain"}, data=json.dumps(value).encode()))


_garbage = st.fixed_dictionaries(
    {
        "encoding": st.sampled_from(("json/plain", "binary/null", "binary/plain", "binary/encrypted", "x", None)),
        "data": st.sampled_from(("", "{", "\xff\x00", "[" * 5_000, '{"a": 1e999}', "null", '"\\ud800"', "9" * 5_000))
        | st.binary(max_size=12).map(lambda data: data.decode("latin-1")),
    }
)
_payloads = st.lists(st.builds(lambda value: {"json": value}, odd_values) | _garbage, max_size=3)
_ends = st.fixed_dictionaries(
    {"task": ids, "status": st.sampled_from(_STATUSES)}, optional={"output": json_values, "error": json_values}
)
_answers = st.fixed_dictionaries({"request_id": ids, "answer": json_values}, optional={"by": json_values})
_message_fields = st.fixed_dictionaries(
    {},
    optional={
        "reason": json_values,
        "by": json_values,
        "node_id": ids,
        "max_parallel": rarely(json_values, st.integers(1, 3)),
        "deadline": rarely(json_values, st.sampled_from(("1s", "1h", None))),
    },
)


@st.composite
def _messages(draw: st.DrawFn) -> Message:
    kind = draw(st.sampled_from(("signal", "signal", "signal", "update", "query", "cancel")))
    names = {"signal": _SIGNALS, "update": _UPDATES, "query": _QUERIES, "cancel": ("cancel",)}[kind]
    name = draw(rarely(st.text(min_size=1, max_size=8), st.sampled_from(names)))
    known: st.SearchStrategy[Any] = _ends if name == "sub_plan_ended" else _message_fields | _answers
    payloads = draw(_payloads | st.builds(lambda value: [{"json": value}], known))
    return Message(kind, name, payloads, draw(st.sampled_from((0, 0, 5, 20, 60, 150, 400))))


_options = st.fixed_dictionaries(
    {}, optional={"max_parallel": rarely(st.sampled_from(BOUNDARY_NUMBERS), st.integers(1, 600)), "policy": json_values}
)
_fields = st.fixed_dictionaries(
    {},
    optional={
        "inputs": rarely(json_values, st.sampled_from(({}, {"name": "x"}, {"name": "x", "x": 1}, {"x": "\x00"}))),
        "context": rarely(json_values, st.sampled_from(({}, {"cbu": "1"}))),
        "options": rarely(odd_values, _options),
    },
)
_own_fields = st.fixed_dictionaries(
    {},
    optional={
        "scope": json_values,
        "path": rarely(json_values, st.sampled_from(([], [["node", "a"]], [["node", "a"], ["item", "1"]]))),
        "parent": rarely(json_values, st.sampled_from((None, {"run_id": "nobody-there", "task": "a"}))),
        "bound": rarely(
            json_values, st.sampled_from(([], [{"search_text": "x", "entity_type": "person", "entity": {"id": "p1"}}]))
        ),
        "snapshot": json_values | st.sampled_from(("AAAA", "eJwDAAAAAAE=")),
        "pages": json_values,
        "unknown": json_values,
    },
)
"""Fields that only a run itself writes."""


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Return a case; most start a run with a plan, and send a few messages."""
    form = draw(st.sampled_from(("client", "client", "client", "raw", "raw", "compiled", "payloads")))
    fields = draw(_fields) if form != "payloads" else {}
    if form in ("raw", "compiled") and chance(draw, 6):
        fields = {**fields, **draw(_own_fields)}
    messages = draw(st.lists(_messages(), max_size=4)) if chance(draw, 2) else []
    return Case(form, draw(_contents(form)), fields, messages, draw(st.booleans()))


def _contents(form: str) -> st.SearchStrategy[Any]:
    if form == "compiled":
        places = st.tuples(st.floats(0, 1, exclude_max=True), odd_values).map(list)
        return st.fixed_dictionaries({"plan": plans(), "changes": st.lists(places, max_size=3)})
    if form == "payloads":
        return _payloads | st.builds(lambda plan: [{"json": {"plan": plan}}], odd_values)
    return plans()
