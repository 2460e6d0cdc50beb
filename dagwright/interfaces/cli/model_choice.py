"""The model of a command, and the check for a missing model."""

from dagwright.core.extras import require_extra
from dagwright.interfaces.cli.background import will_start_worker
from dagwright.interfaces.cli.exit_codes import CommandError, CommandErrorCode
from dagwright.planning.model_calls.model_requests import ModelConfig, model_config_from_json
from dagwright.settings import Settings
from dagwright.toolset.toolset import Toolset


def require_model(
    model: str | None, settings: Settings, toolset: Toolset, *, is_detached: bool, node_id: str | None = None
) -> None:
    """Check that a model is configured for a run that needs one.

    Only the environment of this process is checked; workers in other processes may have another environment.

    Args:
        model: the model that the command names.
        is_detached: a background worker, which may be running already, will serve the run.
        node_id: node whose agent needs a model; `None` if the model writes the plan.

    Raises:
        CommandError: no model is configured, or there is no key.
        MissingExtra: the library that calls models is not installed.
    """
    if is_detached and not will_start_worker(settings, toolset):
        return
    require_extra("openai")
    agent_text = "" if node_id is None else f" and the agent of node {node_id!r} needs one"
    problems, code = [], CommandErrorCode.MODEL_KEY_MISSING
    if model is None and toolset.models.model is None:
        problems.append(f"no model is configured{agent_text}: give one with --model, or set DAGWRIGHT_MODEL")
        code, agent_text = CommandErrorCode.MODEL_NOT_SET, ""
    if toolset.models.endpoint.is_key_missing:
        advice = "set OPENAI_API_KEY, or OPENAI_BASE_URL for a service that needs no key"
        problems.append(f"there is no key for {toolset.models.endpoint.url}{agent_text}: {advice}")
    if problems:
        problems.append(
            "to try the command without a model, use a scripted model (`python -m dagwright.testing`; "
            "examples/maritime of the repository has scripts)"
        )
        raise CommandError("; ".join(problems), code=code)


def model_config(model: str | None) -> ModelConfig:
    """Return the model configuration of a command.

    Raises:
        CommandError: the model name is invalid.
    """
    if model is None:
        return ModelConfig()
    try:
        return model_config_from_json({"model": model})
    except ValueError as error:
        raise CommandError(f"--model: {error}") from None
