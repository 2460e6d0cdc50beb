"""Targets of requests: models of the model service, plans, agents and profiles. A model ID names the target."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from dagwright.core.name_hints import suggestion
from dagwright.core.validation.worker_tools import worker_tools_among
from dagwright.interfaces.http.error_codes import ErrorCode
from dagwright.interfaces.http.errors import ApiError
from dagwright.planning.plan_and_execute.goal_spec import PROFILES

if TYPE_CHECKING:
    from dagwright.interfaces.http.context import GatewayContext

Kind = Literal["plan", "agent", "profile", "model"]
PROFILE_DESCRIPTIONS = {
    "plan": "A model plans steps for the request; after their execution, the model answers from the results",
    "intents": "A model chooses verbs and their entities; then the verbs are called",
    "rounds": "A model plans rounds of worker tools for a question; the answer is written from their findings",
}
"""Profile of the planner -> description."""


@dataclass(frozen=True, slots=True)
class Target:
    """The plan, agent, profile or model that a model ID refers to.

    Args:
        name: name of the template, agent or profile; for a model of the service, its ID.
    """

    kind: Kind
    name: str

    @property
    def id(self) -> str:
        """The model ID."""
        return self.name if self.kind == "model" else f"{self.kind}/{self.name}"

    @property
    def needs_run(self) -> bool:
        """Whether only a run can answer."""
        return self.kind != "model"


def agents_of(context: "GatewayContext") -> dict[str, str]:
    """Return the agents that plans can call: name -> description."""
    declarations = context.toolset.declarations().values()
    return {tool.agent.name: tool.agent.description for tool in declarations if tool.agent is not None}


def profiles_of(context: "GatewayContext") -> list[str]:
    """Return the available profiles of the planner. `rounds` is available only with worker tools."""
    return [*PROFILES, *(["rounds"] if worker_tools_among(context.toolset.declarations()) else [])]


def target_of(context: "GatewayContext", model: str | None) -> Target:
    """Parse a model ID. Whether the service has a model with this ID is not checked.

    Raises:
        ApiError: there is no such plan, agent or profile, or no model is named.
    """
    model_id = (model or context.settings.model or "").strip()
    if not model_id:
        message = "send a model, or set DAGWRIGHT_MODEL for the gateway; GET /v1/models lists all models"
        raise ApiError(ErrorCode.MODEL_NOT_SET, message, param="model")
    kind, slash, name = model_id.partition("/")
    for kind_name in get_args(Kind):
        if slash and kind == kind_name and kind_name != "model":
            _reject_unknown(context, model_id, name, kind=kind_name)
            return Target(kind_name, name)
    return Target("model", model_id)


def _names_of_kind(context: "GatewayContext", kind: Kind) -> list[str]:
    match kind:
        case "plan":
            return list(context.templates)
        case "agent":
            return list(agents_of(context))
        case _:
            return profiles_of(context)


def _reject_unknown(context: "GatewayContext", model: str, name: str, *, kind: Kind) -> None:
    names = _names_of_kind(context, kind)
    if name in names:
        return
    if kind == "plan":
        reject_unusable_plan(context, name, param="model")
    hint = (suggestion(name, names) or "").replace("'", f"'{kind}/", 1)
    explanation = {
        "plan": _no_plan_message(context, name) if kind == "plan" else "",
        "agent": "--agents has no file with an agent of this name",
        "profile": f"available are {', '.join(names)}"
        + ("" if "rounds" in names else "; rounds requires worker tools in --tools"),
    }[kind]
    message = f"the model {model!r:.120} does not exist: {hint or explanation}; GET /v1/models lists all models"
    raise ApiError(ErrorCode.MODEL_NOT_FOUND, message, param="model")


def reject_unusable_plan(context: "GatewayContext", name: str, *, param: str) -> None:
    """Raise `ApiError` with the problems of a published plan if its file is invalid."""
    if problems := context.plan_problems.get(name):
        message = f"the published plan {name!r:.120} cannot be used: {'; '.join(problems)}"
        raise ApiError(ErrorCode.PLAN_UNUSABLE, message, param=param)


def _no_plan_message(context: "GatewayContext", name: str) -> str:
    if folder_problems := context.plan_problems.get(""):
        return "; ".join(folder_problems)
    if context.template_folder is None and not context.templates:
        return "the gateway publishes no plans; start it with --plans FOLDER"
    return f"the --plans folder has no file {name:.80}.json, {name:.80}.yaml or {name:.80}.yml"
