"""Description of a request for people, and the command that answers it."""

import re
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.api.workflowservice.v1 import DescribeTaskQueueResponse

from dagwright.client.feedback.inbox import InboxPage
from dagwright.client.feedback.open_requests import OpenRequest
from dagwright.interfaces.cli import inbox_command
from dagwright.interfaces.cli.inbox_command import inbox_lines
from dagwright.interfaces.cli.request_text import (
    answer_command,
    detail_lines,
    field_lines,
    join_request_ids,
    option_lines,
    question_lines,
    request_line,
)
from dagwright.server import Connection
from dagwright.settings import Settings
from tests.unit.interfaces.cli.open_requests import OPENED_AT, open_request

_COMMAND_START = "dagwright feedback run-1 check"
_FORM_PROPERTIES = {
    **{"amount": {"type": "integer"}, "sure": {"type": "boolean"}, "tags": {"type": "array"}},
    **{"zone": {"enum": ["EU", "US"]}, "quarter": {"type": "string", "default": "Q1"}},
    **{"name": {"type": "string"}, "more": {"type": "string"}},
}
_FORM_SCHEMA = {
    "type": "object",
    "properties": _FORM_PROPERTIES,
    "required": ["amount", "sure", "tags", "zone", "quarter", "name"],
}
_FIELDS_OF_FAILED_NODE_REQUEST = {
    "type": "SELECTION",
    "options": ["retry", "value", "skip", "stop"],
    "purpose": "error",
}
_FORM_VALUES = '{"amount": 1, "sure": true, "tags": [], "zone": "EU", "quarter": "Q1", "name": "TEXT"}'


@pytest.mark.parametrize(
    ("fields", "command"),
    [
        ({}, f"{_COMMAND_START} --approve  (or --reject)"),
        ({"request_id": "sum[a b]"}, "dagwright feedback run-1 'sum[a b]' --approve  (or --reject)"),
        ({"type": "SELECTION", "options": ["a b"]}, f"{_COMMAND_START} --select 'a b'"),
        ({"type": "SELECTION", "options": [1, "x"]}, f"{_COMMAND_START} --select 1  (or x)"),
        (
            {"type": "SELECTION", "options": [1, 2], "multiple": True},
            f"{_COMMAND_START} --select 1  (or 2; repeatable)",
        ),
        ({"type": "SELECTION", "options": []}, _COMMAND_START),
        ({"type": "GUIDANCE"}, f"{_COMMAND_START} --text 'TEXT'"),
        ({"type": "CLARIFICATION"}, f"{_COMMAND_START} --text 'TEXT'"),
        ({"type": "INFORMATION"}, f"{_COMMAND_START} --data '{{}}'"),
        ({"type": "INFORMATION", "schema": _FORM_SCHEMA}, f"{_COMMAND_START} --data '{_FORM_VALUES}'"),
        (_FIELDS_OF_FAILED_NODE_REQUEST, f"{_COMMAND_START} --select retry  (or value --data JSON, skip, stop)"),
    ],
)
def test_answer_command_fits_the_type_of_the_request(fields: dict[str, Any], command: str) -> None:
    assert answer_command(open_request(**fields)) == command


def test_fields_of_a_form_are_listed_after_its_question() -> None:
    properties: dict[str, Any] = {**_FORM_PROPERTIES, "more": {"type": "string", "prompt": "What\nelse?"}}
    request = open_request(type="INFORMATION", prompt="Data?", schema={**_FORM_SCHEMA, "properties": properties})
    lines = [
        *("amount (integer)", "sure (boolean)", "tags (array)", "zone (EU or US)", "quarter (string, default Q1)"),
        *("name (string)", "more (string, optional): What else?"),
    ]
    assert field_lines(request) == detail_lines(request) == lines
    assert question_lines(request) == ["Data?", *lines]
    large_form = {"type": "object", "properties": {f"f{number}": {} for number in range(25)}, "required": ["f0"]}
    lines = field_lines(open_request(type="INFORMATION", schema=large_form))
    assert (len(lines), lines[:2], lines[-1]) == (21, ["f0", "f1 (optional)"], "and 5 more fields")
    assert field_lines(open_request(type="INFORMATION", schema=None)) == []
    assert field_lines(open_request(type="CLARIFICATION", schema=_FORM_SCHEMA)) == []


def test_options_with_labels_are_listed_and_the_answer_command_is_short() -> None:
    options = [{"id": "p_1", "label": "Ann (person, LU)"}, {"id": "p_2", "label": "Ann (person, ES)"}]
    options += [{"id": "p_3", "label": "Ann (person, PT)"}, *({"id": word, "label": word} for word in ("none", "new"))]
    request = open_request(type="SELECTION", options=options, allow_text=True)
    assert answer_command(request) == f"{_COMMAND_START} --select p_1  (or another id, none, new; or --text TEXT)"
    lines = ["p_1: Ann (person, LU)", "p_2: Ann (person, ES)", "p_3: Ann (person, PT)"]
    assert option_lines(request) == field_lines(request) == lines
    assert option_lines(open_request(type="SELECTION", options=["a"])) == option_lines(open_request()) == []


def test_long_lists_are_truncated_and_prompts_are_one_escaped_line() -> None:
    command = answer_command(open_request(type="SELECTION", options=list(range(30))))
    assert command == f"{_COMMAND_START} --select 0  (or {', '.join(map(str, range(1, 20)))}, …)"
    assert join_request_ids([open_request(f"n{number}") for number in range(5)], limit=3) == "n0, n1, n2 and 2 more"
    line = request_line(open_request(prompt="Total\n\x1b[31m5", assignee=None))
    assert line == "check waits for anyone: Total \\u001b[31m5"
    assert request_line(open_request(prompt="", type="SELECTION")) == "check waits for ann: Selection?"


def test_call_that_needs_approval_is_described_in_one_short_line() -> None:
    request = open_request(prompt="Approve 'pay'?", tool="pay", arguments={"to": "bob\nben", "amount": 3})
    call = 'pay with {"to": "bob\\nben", "amount": 3}'
    assert request_line(request) == f"check waits for ann: Approve 'pay'? {call}"
    assert question_lines(request) == ["Approve 'pay'?", call]
    call_line = question_lines(open_request(tool="pay", arguments={"to": "x" * 1_000}))[1]
    assert (len(call_line), call_line[:20], call_line[-1]) == (300, 'pay with {"to": "xxx', "…")


def test_inbox_shows_age_deadline_prompt_and_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dagwright.interfaces.cli.request_text.local_date_time", lambda _: "2023-11-16 23:13:20")
    requests = [
        open_request(deadline="2023-11-16T22:13:20.000Z"),
        open_request("archive/ask", type="INFORMATION", prompt="Who?", assignee=None, run_id="run 2"),
    ]
    assert inbox_lines(requests, now=OPENED_AT + 65) == [
        "run-1  check  APPROVAL for ann, open for 1 min 5 s, until 2023-11-16 23:13:20 (in 1 d 23 h)",
        "  Publish?",
        "  dagwright feedback run-1 check --approve  (or --reject)",
        "run 2  archive/ask  INFORMATION for anyone, open for 1 min 5 s",
        "  Who?",
        "  dagwright feedback 'run 2' archive/ask --data '{}'",
    ]


def test_plan_to_approve_is_shown_by_its_steps() -> None:
    prompt = "The plan has 2 nodes.\n- a: \x1b[1mx\n  - b: y\nMay it run?"
    plan_request = open_request("plan", purpose="plan", prompt=prompt)
    assert request_line(plan_request) == "plan waits for ann: The plan has 2 nodes."
    assert question_lines(plan_request)[2:] == ["  - b: y", "May it run?"]
    assert "\x1b" not in "".join(question_lines(plan_request))
    assert question_lines(open_request(prompt="Total\n5")) == ["Total 5"]
    call = {"tool": "read_model_plan", "arguments": {"plan": {}, "tools": [{"name": "much.to.read"}]}}
    plan_request = open_request("approve", purpose="approval", prompt="May this plan run?\n- a: calculator", **call)
    assert request_line(plan_request) == "approve waits for ann: May this plan run?"
    assert question_lines(plan_request) == ["May this plan run?", *detail_lines(plan_request)]
    assert detail_lines(plan_request) == ["- a: calculator"]


class _Client:
    """Fake Temporal client that reports the given pollers and the given number of open runs."""

    namespace, identity = "default", "1@here"

    def __init__(self, pollers: list[str], open_run_count: int) -> None:
        self._pollers, self._open_run_count, self.workflow_service = pollers, open_run_count, self

    async def describe_task_queue(self, *_: Any, **__: Any) -> DescribeTaskQueueResponse:
        response = DescribeTaskQueueResponse()
        for identity in self._pollers:
            response.pollers.add(identity=identity).last_access_time.FromDatetime(datetime.now(UTC))
        return response

    async def count_workflows(self, _: str) -> SimpleNamespace:
        return SimpleNamespace(count=self._open_run_count)


@pytest.mark.parametrize(
    ("pollers", "open_run_count", "is_starting", "note_start"),
    [
        (["7@elsewhere"], 1, False, ""),
        ([], 0, False, ""),
        ([], 2, False, "no worker serves 2 open runs"),
        ([], 2, True, "the worker in the background is starting"),
    ],
)
async def test_note_names_a_missing_or_starting_worker(
    monkeypatch: pytest.MonkeyPatch, pollers: list[str], open_run_count: int, is_starting: bool, note_start: str
) -> None:
    monkeypatch.setattr(inbox_command, "is_worker_starting", lambda _: is_starting)
    connection = cast("Connection", SimpleNamespace(client=_Client(pollers, open_run_count)))
    assert re.split("[:;] ", await inbox_command.worker_note(connection, Settings()) or "")[0] == note_start


@pytest.mark.parametrize(("timeout_s", "read_count", "has_requests"), [(60.0, 3, True), (0.0, 1, False)])
async def test_waiting_ends_with_the_first_request_or_the_timeout(
    monkeypatch: pytest.MonkeyPatch, timeout_s: float, read_count: int, has_requests: bool
) -> None:
    request = cast("OpenRequest", object())
    unread_pages = [InboxPage((), None, {}), InboxPage((), None, {}), InboxPage([request], None, {})]

    async def read() -> InboxPage:
        return unread_pages.pop(0)

    monkeypatch.setattr(inbox_command, "_POLL_INTERVAL_S", 0)
    page = await inbox_command.wait_for_requests(read, timeout_s=timeout_s)
    assert (3 - len(unread_pages), bool(page.requests)) == (read_count, has_requests)
