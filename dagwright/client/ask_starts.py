"""Prepare runs of requests in natural language for the Python client."""

from dataclasses import dataclass, field, replace

from dagwright.client.errors import OptionInvalid
from dagwright.client.options import RequestOptions, duration_s, model_config, reject_inapplicable_options, run_options
from dagwright.client.requests import TextRequest, prepare_request
from dagwright.client.starts import StartRequest
from dagwright.planning.plan_and_execute.goal_spec import context_from_json
from dagwright.protocol.sessions import SessionRecord
from dagwright.toolset.toolset import Toolset


@dataclass(frozen=True, slots=True)
class AskStart:
    """A request in natural language and the options of its run."""

    text: str
    options: RequestOptions = field(default_factory=RequestOptions)


def prepare_ask(start: AskStart, toolset: Toolset, session: SessionRecord | None = None) -> StartRequest:
    """Prepare the run of a request.

    Args:
        session: state of the session in which the run is a turn; `None` outside of sessions.

    Raises:
        GoalRejected: the request cannot be planned.
        OptionInvalid: an option is invalid.
    """
    options = start.options
    reject_inapplicable_options(options)
    try:
        context = context_from_json(options.get("context", {}))
    except ValueError as error:
        raise OptionInvalid(f"context: {error}") from None
    request = TextRequest(
        start.text,
        model_config(options),
        run_options(options),
        profile=options.get("profile", "plan"),
        max_repairs=options.get("max_repairs"),
        max_replans=options.get("max_replans"),
        max_rounds=options.get("max_rounds"),
        worker_timeout_s=duration_s("worker_timeout", options["worker_timeout"])
        if "worker_timeout" in options
        else None,
        synthesis=options.get("synthesis"),
        context=context,
        confidence=options.get("confidence"),
        approve_plan=options.get("approve_plan", False),
        plan_only=options.get("plan_only", False),
        title=options.get("title"),
        output_schema=options.get("output_schema", {}),
    )
    return replace(prepare_request(request, toolset, session).start, tools=toolset.references)
