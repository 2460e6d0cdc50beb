"""Which model a command asks; refuses what would ask one of nobody, before anything starts."""

from dagwright.core.extras import require_extra
from dagwright.interfaces.cli.background import will_start_worker
from dagwright.interfaces.cli.exits import CommandRefused
from dagwright.planning.model_calls.calls import ModelConfig, model_config_from_json
from dagwright.settings import Settings
from dagwright.toolset.toolset import Toolset


def refuse_without_model(
    model: str | None, settings: Settings, toolset: Toolset, *, is_detached: bool, whose: str | None = None
) -> None:
    """Refuses a run that asks models of which a worker with the environment of this process would ask nobody.

    One that runs elsewhere may have another environment, which is not known here.

    Args:
        model: the one that the command names.
        is_detached: whether the run is left to a worker in the background, which may be there already.
        whose: the node that asks one; `None` is the run itself.

    Raises:
        CommandRefused: no model is named, or there is no key.
        MissingExtra: the library that calls models is not installed.
    """
    if is_detached and not will_start_worker(settings, toolset):
        return
    require_extra("openai")
    words = "" if whose is None else f" and the agent of node {whose!r} asks one"
    wanted, status = [], "no_key"
    if model is None and toolset.models.model is None:
        wanted.append(f"no model is named{words}: give one with --model, or set DAGWRIGHT_MODEL")
        status, words = "no_model", ""
    if toolset.models.endpoint.is_key_missing:
        advice = "set OPENAI_API_KEY, or OPENAI_BASE_URL for a service that needs no key"
        wanted.append(f"there is no key for {toolset.models.endpoint.url}{words}: {advice}")
    if wanted:
        wanted.append(
            "to try it without a model, have a script play one (`python -m dagwright.testing`; examples/maritime of "
            "the repository has scripts)"
        )
        raise CommandRefused("; ".join(wanted), status=status)


def model_config(model: str | None) -> ModelConfig:
    """Returns how a command has models asked.

    Args:
        model: the one that it names.

    Raises:
        CommandRefused: no model can be called so.
    """
    if model is None:
        return ModelConfig()
    try:
        return model_config_from_json({"model": model})
    except ValueError as error:
        raise CommandRefused(f"--model: {error}") from None
