"""A case of the fuzzer: the start of a run and the messages to the run. A case can be saved as JSON."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from hypothesis import strategies as st
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue

from tests.fuzz.plans import plans
from tests.fuzz.values import BOUNDARY_NUMBERS, happens_once_in, ids, json_values, odd_values, usual_or_rare

DEADLINE = "4s"
"""Deadline of every run, because plans may have delays and timeouts of hours."""

_COMMANDS = ("cancel", "pause", "resume", "set_limits", "set_policy", "cancel_node", "retry_node", "add_nodes")
_SIGNALS = (*_COMMANDS, "sub_plan_ended", "feedback", "submit_feedback", "unknown", "x" * 1_000)
_UPDATES = (*_COMMANDS, "submit_feedback", "unknown")
_QUERIES = ("status", "pending_feedback", "node", "graph", "unknown", "__stack_trace")
_STATUSES = ("completed", "failed", "cancelled", "running", "forged", "completed_with_failures")


@dataclass(frozen=True)
class Message:
    """A message to an open run.

    Args:
        kind: `signal`, `update`, `query`, or `cancel` for Temporal's cancellation.
        payloads: each payload is `{"json": value}` or `{"encoding", "data"}`. The text `data` has one character for
            each byte.
        delay_ms: pause before the message is sent.
    """

    kind: str
    name: str
    payloads: list[dict[str, Any]]
    delay_ms: int


@dataclass(frozen=True)
class Case:
    """One run, with the messages to it.

    Args:
        form: how the run is started. `client`: as the command line does; `raw`: with the plan as written;
            `compiled`: with a compiled plan in which some values are replaced; `payloads`: with arbitrary payloads.
        content: for `client` and `raw`, the plan. For `payloads`, a list of payloads. For `compiled`,
            `{"plan", "changes": [[fraction, value]]}`; the fraction, from 0 to 1, is the position of the replaced
            value in the compiled plan.
        fields: fields of the run input besides the plan: inputs, context, options and unknown fields.
        uses_workflow_cache: whether the worker of the run caches workflows.
    """

    form: str
    content: Any
    fields: dict[str, Any]
    messages: list[Message]
    uses_workflow_cache: bool = True

    def to_text(self) -> str:
        """Return the case as JSON; lone surrogates and NaN are preserved."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_text(cls, text: str) -> "Case":
        """Return the case from its JSON text."""
        fields = json.loads(text)
        return cls(**{**fields, "messages": [Message(**message) for message in fields["messages"]]})


def payload_of(description: Mapping[str, Any]) -> RawValue:
    """Return a payload from its description in a case."""
    if "json" in description:
        return json_payload(description["json"])
    metadata = {} if description["encoding"] is None else {"encoding": description["encoding"].encode()}
    return RawValue(Payload(metadata=metadata, data=description["data"].encode("latin-1")))


def json_payload(value: Any) -> RawValue:
    """Return a value as a JSON payload, encoded without the checks of Dagwright's converter."""
    return RawValue(Payload(metadata={"encoding": b"json/plain"}, data=json.dumps(value).encode()))


_odd_payloads = st.fixed_dictionaries(
    {
        "encoding": st.sampled_from(("json/plain", "binary/null", "binary/plain", "binary/encrypted", "x", None)),
        "data": st.sampled_from(("", "{", "\xff\x00", "[" * 5_000, '{"a": 1e999}', "null", '"\\ud800"', "9" * 5_000))
        | st.binary(max_size=12).map(lambda data: data.decode("latin-1")),
    }
)
_payloads = st.lists(st.builds(lambda value: {"json": value}, odd_values) | _odd_payloads, max_size=3)
_child_results = st.fixed_dictionaries(
    {"task": ids, "status": st.sampled_from(_STATUSES)}, optional={"output": json_values, "error": json_values}
)
_answers = st.fixed_dictionaries({"request_id": ids, "answer": json_values}, optional={"by": json_values})
_message_fields = st.fixed_dictionaries(
    {},
    optional={
        "reason": json_values,
        "by": json_values,
        "node_id": ids,
        "max_parallel": usual_or_rare(st.integers(1, 3), rare=json_values),
        "deadline": usual_or_rare(st.sampled_from(("1s", "1h", None)), rare=json_values),
    },
)


@st.composite
def _messages(draw: st.DrawFn) -> Message:
    kind = draw(st.sampled_from(("signal", "signal", "signal", "update", "query", "cancel")))
    names = {"signal": _SIGNALS, "update": _UPDATES, "query": _QUERIES, "cancel": ("cancel",)}[kind]
    name = draw(usual_or_rare(st.sampled_from(names), rare=st.text(min_size=1, max_size=8)))
    contents: st.SearchStrategy[Any] = _child_results if name == "sub_plan_ended" else _message_fields | _answers
    payloads = draw(_payloads | st.builds(lambda value: [{"json": value}], contents))
    return Message(kind, name, payloads, draw(st.sampled_from((0, 0, 5, 20, 60, 150, 400))))


_options = st.fixed_dictionaries(
    {},
    optional={
        "max_parallel": usual_or_rare(st.integers(1, 600), rare=st.sampled_from(BOUNDARY_NUMBERS)),
        "policy": json_values,
    },
)
_fields = st.fixed_dictionaries(
    {},
    optional={
        "inputs": usual_or_rare(
            st.sampled_from(({}, {"name": "x"}, {"name": "x", "x": 1}, {"x": "\x00"})), rare=json_values
        ),
        "context": usual_or_rare(st.sampled_from(({}, {"cbu": "1"})), rare=json_values),
        "options": usual_or_rare(_options, rare=odd_values),
    },
)
_internal_fields = st.fixed_dictionaries(
    {},
    optional={
        "scope": json_values,
        "path": usual_or_rare(st.sampled_from(([], [["node", "a"]], [["node", "a"], ["item", "1"]])), rare=json_values),
        "parent": usual_or_rare(st.sampled_from((None, {"run_id": "missing-run", "task": "a"})), rare=json_values),
        "known_entities": usual_or_rare(
            st.sampled_from(([], [{"search_text": "x", "entity_type": "person", "entity": {"id": "p1"}}])),
            rare=json_values,
        ),
        "snapshot": json_values | st.sampled_from(("AAAA", "eJwDAAAAAAE=")),
        "pages": json_values,
        "unknown": json_values,
    },
)
"""Fields that no user sets: Dagwright's clients and workflows write them. The field `unknown` does not exist."""


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Return a case; most cases start a run with a plan and send a few messages."""
    form = draw(st.sampled_from(("client", "client", "client", "raw", "raw", "compiled", "payloads")))
    fields = draw(_fields) if form != "payloads" else {}
    if form in ("raw", "compiled") and happens_once_in(draw, 6):
        fields = {**fields, **draw(_internal_fields)}
    messages = draw(st.lists(_messages(), max_size=4)) if happens_once_in(draw, 2) else []
    return Case(form, draw(_contents(form)), fields, messages, draw(st.booleans()))


def _contents(form: str) -> st.SearchStrategy[Any]:
    if form == "compiled":
        change = st.tuples(st.floats(0, 1, exclude_max=True), odd_values).map(list)
        return st.fixed_dictionaries({"plan": plans(), "changes": st.lists(change, max_size=3)})
    if form == "payloads":
        return _payloads | st.builds(lambda plan: [{"json": {"plan": plan}}], odd_values)
    return plans()
