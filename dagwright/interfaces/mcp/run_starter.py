"""Start the runs of MCP calls: plans, templates, and requests in natural language."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dagwright.client.errors import RunIdInUse, RunIdInvalid, TurnRejected
from dagwright.client.requests import TextRequest, TurnRequest, prepare_request, start_turn
from dagwright.client.sessions import Sessions
from dagwright.client.starts import RunStartOptions, StartedRun, StartRequest
from dagwright.core.compiler.plan_text import changing_node_count
from dagwright.core.errors import PlanInvalid
from dagwright.core.model.compiled import path_of_first_model_node
from dagwright.core.model.policy import Policy, model_policy
from dagwright.core.model.times import parse_duration
from dagwright.core.validation.checked_plan import CheckedPlan
from dagwright.interfaces.mcp.call_errors import McpCallRejected
from dagwright.planner import GoalRejected
from dagwright.planner.plan_parser import with_policy_approval
from dagwright.planning.model_calls.model_requests import ModelConfig, model_config_from_json
from dagwright.plans.posted_plans import check_posted_plan, posted_plan
from dagwright.plans.preparation import policy_problems
from dagwright.plans.templates import Template, Templates, compile_template
from dagwright.protocol.sessions import SessionIdInvalid, SessionRecord, normalized_session_name
from dagwright.toolset.toolset import Toolset

if TYPE_CHECKING:
    from dagwright.client.runs import Runs

_CLIENT_PLAN_POLICY = model_policy("")
"""Plans of clients need approval before they change anything, because models write the plans of clients."""
NO_TEMPLATES: Templates = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class RunStarter:
    """Starter of the runs of MCP calls.

    Args:
        runs, sessions: clients of the namespace.
        toolset: tools that plans may call.
        policy: policy of plans that clients send.
        has_worker: whether this process is a worker of the runs.
    """

    runs: "Runs"
    sessions: Sessions
    toolset: Toolset
    policy: Policy = field(default=_CLIENT_PLAN_POLICY)
    has_worker: bool = True

    async def start_plan(
        self, arguments: Mapping[str, Any], *, run_id: str | None, templates: Templates = NO_TEMPLATES
    ) -> StartedRun:
        """Start the run of a plan that a client sends.

        Args:
            arguments: arguments of `run_plan`.
            templates: templates that the plan may name as sub-plans.
            run_id: ID of the run; `None` for a new ID.

        Raises:
            PlanInvalid: the plan or its inputs are invalid.
            McpCallRejected: the run cannot be started.
        """
        checked_plan, document = self.check(arguments, templates)
        inputs = arguments.get("inputs") or {}
        compiled_plan = with_policy_approval(compile_template(checked_plan, inputs))
        # As with plans of the planner, only plans with effects need approval.
        options = RunStartOptions(
            _duration_s(arguments, "deadline"), self.policy, needs_approval=changing_node_count(compiled_plan) > 0
        )
        source = {"plan": document, "dialect": checked_plan.dialect, "context": {}}
        return await self._start(StartRequest(compiled_plan, source, inputs, options), run_id=run_id)

    def check(self, arguments: Mapping[str, Any], templates: Templates = NO_TEMPLATES) -> tuple[CheckedPlan, Any]:
        """Return the checked plan of a call, and the plan as written.

        Raises:
            PlanInvalid: the plan is invalid; the error has all problems.
        """
        client_plan = posted_plan(arguments["plan"], arguments.get("dialect"), templates)
        checked_plan, document = check_posted_plan(client_plan, self.toolset.declarations())
        if problems := policy_problems(checked_plan, self.policy):
            raise PlanInvalid(problems)
        return checked_plan, document

    async def start_template(
        self, template: Template, inputs: Mapping[str, Any], *, run_id: str | None, deadline: str | None = None
    ) -> StartedRun:
        """Start the run of a template, whose author is trusted.

        Args:
            deadline: maximum duration, such as `2h`.

        Raises:
            PlanInvalid: the inputs are invalid.
            McpCallRejected: the run cannot be started.
        """
        options = RunStartOptions(_duration_s({"deadline": deadline}, "deadline"))
        start_request = StartRequest(template.compile(inputs), template.source, inputs, options)
        return await self._start(
            replace(start_request, title=template.file_name, template=template.name), run_id=run_id
        )

    async def start_request(self, arguments: Mapping[str, Any], *, run_id: str | None) -> StartedRun:
        """Start the run of a request in natural language; with `session_id`, as a turn of this session.

        Raises:
            McpCallRejected: the run cannot be started.
        """
        model = arguments.get("model")
        self._require_model(model)
        request = TextRequest(
            arguments["request"],
            _model_config(model),
            RunStartOptions(_duration_s(arguments, "deadline")),
            profile=arguments.get("profile", "plan"),
            max_rounds=arguments.get("max_rounds"),
            worker_timeout_s=_duration_s(arguments, "worker_timeout"),
            synthesis=arguments.get("synthesis"),
        )
        if request.profile != "rounds" and (options := request.names_of_rounds_options):
            raise McpCallRejected("invalid_value", f"{options[0]}: only the profile `rounds` supports this argument")
        try:
            start_request = self._prepare(request)
            if (session_id := arguments.get("session_id")) is not None:
                turn = TurnRequest(normalized_session_name(session_id), request.text, partial(self._prepare, request))
                started_run, _ = await start_turn(turn, self.runs, self.sessions, run_id=run_id)
                return started_run
        except (GoalRejected, TurnRejected) as error:
            raise McpCallRejected(error.code, str(error)) from None
        except SessionIdInvalid as error:
            raise McpCallRejected("invalid_session_id", str(error)) from None
        except (RunIdInUse, RunIdInvalid) as error:
            raise _id_error(error) from None
        return await self._start(start_request, run_id=run_id)

    def _prepare(self, request: TextRequest, session: SessionRecord | None = None) -> StartRequest:
        start_request = prepare_request(request, self.toolset, session).start
        return replace(start_request, tools=self.toolset.references)

    async def _start(self, start_request: StartRequest, *, run_id: str | None) -> StartedRun:
        if path_of_first_model_node(start_request.plan) is not None:
            self._require_model(None)
        try:
            return await self.runs.start(replace(start_request, run_id=run_id, tools=self.toolset.references))
        except (RunIdInUse, RunIdInvalid) as error:
            raise _id_error(error) from None

    def _require_model(self, model: str | None) -> None:
        if not self.has_worker:
            # The settings of the workers are unknown. If the workers have no model, a node fails with the same code.
            return
        if model is None and self.toolset.models.model is None:
            raise McpCallRejected("model_not_set", "no model is configured: set DAGWRIGHT_MODEL for this server")
        if self.toolset.models.endpoint.is_key_missing:
            raise McpCallRejected(
                "model_key_missing", "the model service has no API key: set OPENAI_API_KEY for this server"
            )


def _id_error(error: RunIdInUse | RunIdInvalid) -> McpCallRejected:
    return McpCallRejected("run_id_in_use" if isinstance(error, RunIdInUse) else "invalid_run_id", str(error))


def _duration_s(arguments: Mapping[str, Any], name: str) -> float | None:
    value = arguments.get(name)
    if value is None:
        return None
    try:
        return parse_duration(value).total_seconds()
    except ValueError as error:
        raise McpCallRejected("invalid_value", f"{name}: {error}") from None


def _model_config(model: str | None) -> ModelConfig:
    if model is None:
        return ModelConfig()
    try:
        return model_config_from_json({"model": model})
    except ValueError as error:
        raise McpCallRejected("invalid_value", f"model: {error}") from None
