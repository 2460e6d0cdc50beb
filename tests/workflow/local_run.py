"""Runs of text requests and agents without a server: a scheduler with scripted models and local tools.

The model receives the messages that the activity `call_model` sends: the earlier conversation, then the shortened
messages of the request.
"""

import asyncio
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from temporalio.exceptions import ApplicationError

from dagwright.activities.read_model_plan import read_plan_activity
from dagwright.activities.values import LargeValues
from dagwright.core.model.compiled import CompiledPlan, plan_from_json, plan_to_json
from dagwright.core.model.policy import ALLOW_ALL, policy_of_extender
from dagwright.core.model.requests import Feedback, Request
from dagwright.core.model.states import NodeError, Task
from dagwright.core.model.tools import MODEL_TOOL, PLAN_READER
from dagwright.features.commands.steering import RunCommand, UnparsedCommand, apply_command
from dagwright.features.run_scheduler import create_scheduler
from dagwright.planning.model_calls.message_preparation import sendable_messages
from dagwright.planning.model_calls.model_requests import request_from_json
from dagwright.protocol.documents import RunFacts, result_document
from dagwright.protocol.run_start import extender_of
from tests.support.activity_harness import ActivityHarness
from tests.support.function_harness import FunctionHarness
from tests.support.memory_store import MemoryStore
from tests.support.runs import Document, bare_document
from tests.support.tools import CallHarness

REGISTRY = CallHarness().registry()
TOOLS = REGISTRY.declarations()
FUNCTIONS = {spec.name: spec.function for spec in REGISTRY if spec.function is not None}


USAGE = {"calls": 1, "prompt_tokens": 5, "completion_tokens": 5}


class Call(NamedTuple):
    """One call of the model."""

    node_id: str
    purpose: str
    messages: Sequence[dict[str, Any]]
    has_schema: bool
    tools: Sequence[str]
    tool_choice: str


class LocalRun:
    """A run that continues until its end or until a request to a person.

    Args:
        script: responses of the model in order: a text, tool calls (see `tool_calls`), an error, or a function that
            receives the run during the model call and returns such a response.
    """

    def __init__(self, plan: CompiledPlan, *script: Any, **inputs: Any) -> None:
        plan = plan_from_json(json.loads(json.dumps(plan_to_json(plan))))
        self.scheduler = create_scheduler(plan, inputs, policy=policy_of_extender(plan.extender) or ALLOW_ALL)
        self.scheduler.features.extension.set_extender(extender_of(plan))
        self.calls: list[Call] = []
        self._script = [*script]
        self._conversations: dict[str, list[dict[str, Any]]] = {}
        self._now = 0.0
        self.scheduler.start(self._now)
        self._continue()

    def document(self) -> Document:
        """Return the current bare document of the run."""
        return bare_document(json.loads(json.dumps(result_document(self.scheduler, RunFacts("run", "1")))))

    def final_document(self) -> Document:
        """Return the bare document of an ended run whose model has used its whole script."""
        assert self.scheduler.is_finished
        assert self._script == []
        return self.document()

    @property
    def purposes(self) -> list[tuple[str, str]]:
        return [(call.node_id, call.purpose) for call in self.calls]

    def titles(self, base_id: str) -> list[str | None]:
        return [node.title for node, _ in self.scheduler.state.visible_nodes() if node.id.partition("#")[0] == base_id]

    def request_of(self, task: str) -> Request:
        request = self.scheduler.features.feedback.requests.of_task(task)
        assert request is not None
        return request

    def answer(self, task: str, answer: Any) -> None:
        assert (
            self.scheduler.features.feedback.answer(Feedback(self.request_of(task).id, answer, by="ann"), self._now)
            is None
        )
        self._continue()

    def command(self, command: RunCommand | UnparsedCommand) -> str | None:
        """Apply a command. Return the reason if the command is rejected."""
        return apply_command(command, self.scheduler, at=self._now)

    def _continue(self) -> None:
        while (task := self.scheduler.next_task(self._now)) is not None:
            self._now += 1.0
            result = self._run_task(task)
            if isinstance(result, NodeError):
                self.scheduler.fail(task.id, result, at=self._now)
            else:
                self.scheduler.complete(task.id, result, at=self._now)

    def _run_task(self, task: Task) -> Any:
        arguments = json.loads(json.dumps(task.arguments))
        if task.node.tool == MODEL_TOOL:
            return self._call_model(task.id, arguments)
        if task.node.tool == PLAN_READER:
            harness = ActivityHarness(read_plan_activity(TOOLS, LargeValues(MemoryStore())))
            return json.loads(asyncio.run(harness.payload(arguments)).data)
        harness = FunctionHarness(FUNCTIONS[task.node.tool])
        try:
            return asyncio.run(harness.result(arguments))
        except ApplicationError as error:
            return NodeError(error.type or "", error.message)

    def _call_model(self, node_id: str, arguments: Any) -> Any:
        request = request_from_json(arguments)
        call = request.call
        messages = self._conversations.get(request.previous_conversation or "", []) + [
            message.model_dump(mode="json", exclude_none=True) for message in sendable_messages(request)
        ]
        tools = [tool.name for tool in call.tools]
        recorded_call = Call(node_id, call.labels.purpose, messages, call.output is not None, tools, call.tool_choice)
        self.calls.append(recorded_call)
        response = self._script.pop(0)
        response = response(self) if callable(response) else response
        if isinstance(response, NodeError):
            return response
        requested_calls = response if isinstance(response, list) else []
        message = {"role": "assistant", "content": None if requested_calls else response, "tool_calls": requested_calls}
        self._conversations[f"ref{len(self.calls)}"] = [*messages, message]
        result = {
            "message": message,
            "output": _parse_or_none(response),
            "model": "m",
            "usage": USAGE,
            "accepted_nodes": [],
        }
        return {**result, "finish_reason": "stop", "conversation": f"ref{len(self.calls)}"}


def _parse_or_none(message: Any) -> Any:
    try:
        return json.loads(message)
    except (TypeError, ValueError):
        return None


def tool_calls(*calls: tuple[str, Any]) -> list[dict[str, Any]]:
    """Return a model response with calls of tools: name and arguments. Text arguments are not encoded."""
    return [
        {"id": f"c{number}", "name": name, "arguments": value if isinstance(value, str) else json.dumps(value)}
        for number, (name, value) in enumerate(calls)
    ]
