"""What each tool of the MCP server does: the arguments of a call in, its result out.

What a call cannot do is a result with `isError`, so that the model behind the client reads why and tries otherwise.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import mcp_types as types
from temporalio.service import RPCError

from dagwright.client.answering import AnswerTarget, AnswerUnclear, NothingAsked, find_target, send_answer
from dagwright.client.feedback import Answer, FeedbackRejected, OpenRequest
from dagwright.client.run_lists import RunFilter
from dagwright.client.runs import Runs, Started
from dagwright.client.sessions import SessionNotFound
from dagwright.client.steering import Actor, Steering
from dagwright.core.model.argument_checks import SchemaOfTool
from dagwright.core.model.compiled import CompiledPlan
from dagwright.core.model.errors import PlanInvalid
from dagwright.core.validation.checked_plan import Checked
from dagwright.dialects.json_reader import json_problems
from dagwright.features.feedback.plan_text import changes_of
from dagwright.history.run_reader import RunClosed, RunNotFound
from dagwright.interfaces.mcp import catalogue
from dagwright.interfaces.mcp.asking import Asking, CallState, Context, StateUnreadable, state_in
from dagwright.interfaces.mcp.following import followed, take_responses
from dagwright.interfaces.mcp.results import invalid, refusal, result_of, run_result
from dagwright.interfaces.mcp.starting import CallRefused, Starter
from dagwright.plans.preparation import check_size
from dagwright.plans.templates import Templates
from dagwright.server import NO_ANSWER
from dagwright.store import StoreError

KEY_META = "dagwright/idempotencyKey"
"""What of a call's `_meta` is the id of the run that it starts, if its arguments name none."""
_STARTING = (catalogue.RUN_PLAN, catalogue.ASK)
"""Tools that start runs and have arguments of their own for that; those of a template are the inputs of its plan."""
_ANSWERS = ("approved", "selected", "text", "data")
_BESIDE = ("reason", "remember", "arguments", "value")
"""What an answer may have beside these; the run says which of it does not fit."""

Result = types.CallToolResult | types.InputRequiredResult
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a tool.

    Args:
        context: of its request.
        params: as they came.
        tool: what is called.
    """

    context: Context
    params: types.CallToolRequestParams
    tool: types.Tool

    @property
    def arguments(self) -> Mapping[str, Any]:
        """Returns the arguments."""
        return self.params.arguments or {}

    @property
    def run_id(self) -> str | None:
        """Returns the id that the caller wants the run to have."""
        named = self.arguments.get("run_id") if self.tool.name in _STARTING else None
        key = (self.context.meta or {}).get(KEY_META)
        return named if named is not None else key if isinstance(key, str) else None

    @property
    def wait_s(self) -> float:
        """Returns how long it may wait for the end of a run."""
        if self.tool.name not in (*_STARTING, catalogue.GET_RUN, catalogue.ANSWER_FEEDBACK):
            return catalogue.WAIT_S
        return float(self.arguments.get("wait_s", catalogue.WAIT_S))

    @property
    def by(self) -> str:
        """Returns who answers and cancels, as the run keeps it."""
        return author_of(self.context)


def author_of(context: Context) -> str:
    """Returns who answers and cancels through a client, as runs keep it."""
    told = context.session.client_params
    return f"{told.client_info.name} (MCP)" if told is not None else "MCP"


class Calls:
    """The tools of a server.

    Args:
        tools: as `tools_of` makes them.
        templates: those among them.
        starter: starts runs.
        steering: steers them.
    """

    def __init__(
        self, tools: Sequence[types.Tool], templates: Templates, *, starter: Starter, steering: Steering
    ) -> None:
        self.publish(tools, templates)
        self._starter = starter
        self._steering = steering
        self._runs: Runs = starter.runs
        self._others: Mapping[str, Callable[[Call], Awaitable[Result]]] = {
            catalogue.CHECK_PLAN: self._check_plan,
            catalogue.GET_RUN: self._get_run,
            catalogue.LIST_RUNS: self._list_runs,
            catalogue.ANSWER_FEEDBACK: self._answer_feedback,
            catalogue.CANCEL: self._cancel,
        }

    def publish(self, tools: Sequence[types.Tool], templates: Templates) -> None:
        """Replace the tools by those of other templates."""
        self.tools = {tool.name: tool for tool in tools}
        self._templates = templates
        self._schemas = {tool.name: SchemaOfTool(tool.input_schema) for tool in tools}

    async def call(self, call: Call) -> Result:
        """Returns the result of a call; one that can not be done has a result too, with `isError`."""
        return await self._told(call, self._done)

    async def begun(self, call: Call) -> Started | types.CallToolResult:
        """Starts the run of a call, or finds the one of the same id and content.

        Returns:
            The result of the call if there is no run.
        """
        return await self._told(call, self._started)

    async def _told(self, call: Call, work: Callable[[Call], Awaitable[Made]]) -> Made | types.CallToolResult:
        """Returns what comes of a call, or a result that says why nothing can."""
        if deep := json_problems(dict(call.arguments)):
            return refusal("bad_usage", f"the arguments of {call.tool.name} are wrong: {deep[0].message}")
        wrong = [message for _, message, _ in self._schemas[call.tool.name].problems_of(call.arguments, ())]
        if wrong:
            return refusal("bad_usage", f"the arguments of {call.tool.name} are wrong: {'; '.join(wrong)}")
        try:
            return await work(call)
        except PlanInvalid as problems:
            return invalid(problems)
        except CallRefused as refused:
            return refusal(refused.status, str(refused))
        except StateUnreadable as error:
            return refusal("bad_usage", str(error))
        except (RunNotFound, SessionNotFound) as error:
            return refusal("not_found", str(error))
        except RunClosed as error:
            return refusal("refused", f"{error}; {catalogue.GET_RUN} tells what it made")
        except FeedbackRejected as error:
            return refusal("refused", str(error))
        except StoreError as error:
            return refusal("no_store", str(error))
        except RPCError as error:
            if error.status not in NO_ANSWER:
                return refusal("refused", f"the Temporal server refuses it: {error.message}")
            words = f"runs that were started stay, and {catalogue.GET_RUN} fetches them later"
            return refusal("no_server", f"the Temporal server does not answer; {words}")

    async def _done(self, call: Call) -> Result:
        state = state_in(call.params)
        if state is not None:
            return await self._go_on(call, state)
        other = self._others.get(call.tool.name)
        return await (other(call) if other is not None else self._start(call))

    async def _started(self, call: Call) -> Started:
        template = self._templates.get(call.tool.name)
        if template is not None:
            return await self._starter.template(template, call.arguments, run=call.run_id)
        if call.tool.name == catalogue.ASK:
            return await self._starter.words(call.arguments, run=call.run_id)
        if (name := call.arguments.get("template")) is not None and "plan" not in call.arguments:
            inputs, deadline = call.arguments.get("inputs") or {}, call.arguments.get("timeout")
            return await self._starter.template(self._templates[name], inputs, run=call.run_id, deadline=deadline)
        if name is not None or "plan" not in call.arguments:
            raise CallRefused("bad_usage", "give either `plan` or `template`")
        return await self._starter.plan(call.arguments, run=call.run_id, templates=self._templates)

    async def _start(self, call: Call) -> Result:
        started = await self._started(call)
        return await self._followed(call, started.workflow_id, Asking(call.context))

    async def _go_on(self, call: Call, state: CallState) -> Result:
        """Goes on with a call that has asked its client, which has answered."""
        asking = Asking(call.context, left=set(state.left), rounds=state.rounds)
        responses = call.params.input_responses or {}
        await take_responses(responses, asking, self._runs, workflow_id=state.workflow_id, by=call.by)
        return await self._followed(call, state.workflow_id, asking)

    async def _followed(self, call: Call, workflow_id: str, asking: Asking, *, said: str = "") -> Result:
        seen = await followed(self._runs, workflow_id, asking, wait_s=call.wait_s, by=call.by)
        if seen.interim is not None:
            return seen.interim
        return run_result(await self._runs.document(seen.view), said=" ".join(filter(None, [said, seen.said])))

    async def _check_plan(self, call: Call) -> Result:
        checked, held = await asyncio.to_thread(self._checked_plan, call.arguments)
        document = {
            "status": "valid",
            "title": checked.plan.title,
            "dialect": checked.dialect,
            "node_count": len(checked.nodes),
            "edges": checked.edges,
            "critical_path": checked.critical_path,
            "inputs": [{"name": name, **schema} for name, schema in checked.inputs.items()],
            "approve_plan": changes_of(held) > 0,
            "notes": [note.to_json() for note in checked.notes],
        }
        return result_of(document)

    def _checked_plan(self, arguments: Mapping[str, Any]) -> tuple[Checked, CompiledPlan]:
        checked, _ = self._starter.checked(arguments, self._templates)
        return checked, check_size(checked)

    async def _get_run(self, call: Call) -> Result:
        return await self._followed(call, call.arguments["run_id"], Asking(call.context))

    async def _list_runs(self, call: Call) -> Result:
        limit, wanted = call.arguments.get("limit", catalogue.LISTED), RunFilter(status=call.arguments.get("status"))
        found = await self._runs.list_runs(limit=int(limit), wanted=wanted)
        words = f"{len(found)} runs; {catalogue.GET_RUN} tells what one has made"
        return result_of({"status": "listed", "message": words, "runs": [each.to_json() for each in found]})

    async def _answer_feedback(self, call: Call) -> Result:
        given = [name for name in _ANSWERS if name in call.arguments]
        if len(given) != 1:
            raise CallRefused("bad_usage", f"give exactly one of {', '.join(_ANSWERS)}, not {len(given)}")
        workflow_id = call.arguments["run_id"]
        people = self._runs.people
        target = _target(workflow_id, await people.requests_of(workflow_id), call.arguments)
        content = {name: call.arguments[name] for name in (*given, *_BESIDE) if name in call.arguments}
        answer = Answer(content, call.by, call.arguments.get("note"), through="mcp")
        outcome = await send_answer(people, target, answer)
        said, is_unclear = outcome.message, outcome.is_ambiguous
        if outcome.is_refused:
            hint = "with `all` it is for all of them" if is_unclear else f"{catalogue.GET_RUN} tells how it stands"
            raise CallRefused("refused", said if target.requests and not is_unclear else f"{said}; {hint}")
        names = {one.id for one in target.requests} or {target.name}
        asking = Asking(call.context, left={*names}, taken={*names})
        return await self._followed(call, workflow_id, asking, said=f"{said}.")

    async def _cancel(self, call: Call) -> Result:
        workflow_id = call.arguments["run_id"]
        said = await self._steering.cancel(workflow_id, Actor(call.by, call.arguments.get("reason")))
        words = f"{said}; {catalogue.GET_RUN} tells when it has stopped"
        return result_of({"status": "cancelling", "message": words, "run_id": workflow_id})


def _target(workflow_id: str, asked: Sequence[OpenRequest], arguments: Mapping[str, Any]) -> AnswerTarget:
    try:
        return find_target(workflow_id, asked, arguments.get("request_id"), of_all=bool(arguments.get("all")))
    except NothingAsked:
        raise CallRefused("not_found", f"the run {workflow_id!r} asks nothing of anyone now") from None
    except AnswerUnclear as names:
        words = f"the run {workflow_id!r} asks {len(asked):,} things; give `request_id`: {names}"
        raise CallRefused("bad_usage", words) from None
