"""What the models of the API are: those of the service under their own names; plans, agents and profiles of ours."""

from dataclasses import dataclass
from typing import Literal, get_args

from dagwright.core.expressions.references import suggestion
from dagwright.core.validation.workers import workers_among
from dagwright.interfaces.http.desk import Desk
from dagwright.interfaces.http.errors import ApiError
from dagwright.planning.plan_and_execute.goals import PROFILES

Kind = Literal["plan", "agent", "profile", "model"]
PROFILE_WORDS = {
    "plan": "A model plans steps for the request, which run, and answers from their results",
    "intents": "A model chooses verbs and the entities that they are about, which are then called",
    "rounds": "A question is planned for in rounds of workers, and answered from what they found",
}
"""Profile of the planner -> what it does."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a model id stands for.

    Args:
        name: of the template, agent or profile; of a model of the service its id.
    """

    kind: Kind
    name: str

    @property
    def id(self) -> str:
        """Returns the model id."""
        return self.name if self.kind == "model" else f"{self.kind}/{self.name}"

    @property
    def is_ours(self) -> bool:
        """Tells whether only a run can answer."""
        return self.kind != "model"


def agents_of(desk: Desk) -> dict[str, str]:
    """Returns the agents that plans can call: name -> what each does."""
    declared = desk.toolset.declarations().values()
    return {tool.agent.name: tool.agent.description for tool in declared if tool.agent is not None}


def profiles_of(desk: Desk) -> list[str]:
    """Returns the profiles of the planner that can come to something: rounds need workers."""
    return [*PROFILES, *(["rounds"] if workers_among(desk.toolset.declarations()) else [])]


def target_of(desk: Desk, model: str | None) -> Target:
    """Returns what a model id stands for; whether the service has a model of its own is not known here.

    Raises:
        ApiError: it stands for nothing.
    """
    named = (model or desk.settings.model or "").strip()
    if not named:
        words = "name a model, or set DAGWRIGHT_MODEL of the gateway; GET /v1/models lists what there is"
        raise ApiError(400, words, param="model", code="model_missing")
    kind, slash, name = named.partition("/")
    for known in get_args(Kind):
        if slash and kind == known and known != "model":
            _refuse_unknown(desk, named, name, kind=known)
            return Target(known, name)
    return Target("model", named)


def _names(desk: Desk, kind: Kind) -> list[str]:
    match kind:
        case "plan":
            return list(desk.templates)
        case "agent":
            return list(agents_of(desk))
        case _:
            return profiles_of(desk)


def _refuse_unknown(desk: Desk, model: str, name: str, *, kind: Kind) -> None:
    known = _names(desk, kind)
    if name in known:
        return
    if kind == "plan":
        refuse_broken(desk, name, param="model")
    near = (suggestion(name, known) or "").replace("'", f"'{kind}/", 1)
    where = {
        "plan": _no_plan(desk, name) if kind == "plan" else "",
        "agent": "no file of --agents has one of that name",
        "profile": f"there are {', '.join(known)}"
        + ("" if "rounds" in known else ", and rounds too where --tools names workers"),
    }[kind]
    words = f"the model {model!r:.120} does not exist: {near or where}; GET /v1/models lists what there is"
    raise ApiError(404, words, param="model", code="model_not_found")


def refuse_broken(desk: Desk, name: str, *, param: str) -> None:
    """Refuse a published plan whose file cannot be used.

    Raises:
        ApiError: it is one; the message has the problems of the file.
    """
    if problems := desk.broken.get(name):
        words = f"the published plan {name!r:.120} cannot be used: {'; '.join(problems)}"
        raise ApiError(422, words, param=param, code="plan_unusable")


def _no_plan(desk: Desk, name: str) -> str:
    if unreadable := desk.broken.get(""):
        return "; ".join(unreadable)
    if desk.plans is None and not desk.templates:
        return "the gateway publishes no plans; start it with --plans FOLDER"
    return f"the folder of --plans has no file {name:.80}.json, {name:.80}.yaml or {name:.80}.yml"
