"""Tables of the messages that workflows handle, and of the fields and options of the input that starts a run."""

from collections.abc import Iterator, Mapping, Sequence

from temporalio import workflow

from dagwright.core.boundary import wire
from dagwright.protocol.run_input import START_FIELDS, START_OPTIONS
from dagwright.workflows.run_plan import RunPlanWorkflow
from dagwright.workflows.session import SessionWorkflow
from scripts.reference.markdown import code, first_paragraph, table

_INTERNAL_MESSAGES = frozenset(
    {
        wire.SIGNAL_BUDGET_GRANT,
        wire.SIGNAL_BUDGET_REPORT,
        wire.SIGNAL_PLANNED,
        wire.SIGNAL_SUB_PLAN_ENDED,
        wire.SIGNAL_TURN_ENDED,
        wire.UPDATE_START_TURN,
    }
)
"""Messages between workflows and activities of Dagwright, which other programs do not send."""
_BY_AND_REASON = '{"reason": "too early", "by": "ann"}'
_PAYLOADS: Mapping[str, str] = {
    wire.SIGNAL_FEEDBACK: '{"request_id": "check", "answer": {"approved": true}, "by": "ann", "note": "fine"}',
    wire.UPDATE_SUBMIT_FEEDBACK: '{"request_id": "check", "answer": {"approved": true}, "by": "ann", "note": "fine"}',
    wire.CANCEL: _BY_AND_REASON,
    wire.PAUSE: _BY_AND_REASON,
    wire.RESUME: _BY_AND_REASON,
    wire.CANCEL_NODE: '{"node_id": "sum", "branch": false, "reason": "wrong input", "by": "ann"}',
    wire.RETRY_NODE: '{"node_id": "sum", "arguments": {"expression": "1 + 2"}, "by": "ann"}',
    wire.SET_RESULT: '{"node_id": "sum", "result": 3, "reason": "checked", "by": "ann"}',
    wire.ADD_NODES: '{"nodes": [{"id": "more", "tool": "calculator"}], "tools": {}, "by": "ann"}',
    wire.SET_POLICY: '{"policy": {"otherwise": "run"}, "by": "ann"}',
    wire.SET_LIMITS: '{"max_parallel": 8, "deadline": "4h", "budget": {"tokens": 50000}, "by": "ann"}',
    wire.QUERY_STATUS: "",
    wire.QUERY_PENDING: "",
    wire.QUERY_GRAPH: "",
    wire.QUERY_NODE: '"sum"',
    wire.SIGNAL_END_SESSION: "",
}
"""Message -> example of its payload."""


def start_fields_table() -> str:
    """Return a table of the public fields of a run's input."""
    rows = [(code(name), field.json_type, field.meaning) for name, field in START_FIELDS.items()]
    return table(("Field", "Type", "Meaning"), rows)


def start_options_table() -> str:
    """Return a table of the options in a run's input."""
    return table(("Option", "Meaning"), [(code(name), option.meaning) for name, option in START_OPTIONS.items()])


def run_messages_table() -> str:
    """Return a table of the messages to a run: name, kinds, payload and meaning.

    Raises:
        KeyError: a message has no payload in `_PAYLOADS`.
        ValueError: a handler has no description.
    """
    return _messages_table(RunPlanWorkflow)


def session_messages_table() -> str:
    """Return a table of the messages to a session; raises like `run_messages_table`."""
    return _messages_table(SessionWorkflow)


def _messages_table(workflow_class: type) -> str:
    return table(("Message", "Kind", "Payload", "Meaning"), _rows(workflow_class))


def _rows(workflow_class: type) -> Iterator[Sequence[str]]:
    kinds: dict[str, list[str]] = {}
    meanings: dict[str, str] = {}
    definition = workflow._Definition.must_from_class(workflow_class)
    for kind, handlers in (
        ("signal", definition.signals),
        ("update", definition.updates),
        ("query", definition.queries),
    ):
        for message, handler in handlers.items():
            if message is not None and message not in _INTERNAL_MESSAGES:
                kinds.setdefault(message, []).append(kind)
                function = getattr(handler, "fn", None)
                meanings.setdefault(message, first_paragraph(getattr(function, "__doc__", "")))
                if not meanings[message]:
                    raise ValueError(f"the handler of the {kind} {message!r} needs a docstring")
    for message in sorted(kinds, key=lambda each: (kinds[each] == ["query"], each)):
        yield code(message), ", ".join(kinds[message]), code(_PAYLOADS[message]), meanings[message]
