"""`make demo-ask`: a request in words is planned by a model, run, and answered.

With OPENAI_API_KEY or OPENAI_BASE_URL a real model plans, the one of DAGWRIGHT_MODEL. Without, a script plays its part
(`examples/ask/script.yaml`); the first line says which of the two it is.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import SecretStr

from dagwright.interfaces.cli.connecting import command_settings
from dagwright.interfaces.cli.edge import guarded, leave
from dagwright.interfaces.cli.goals import ask_with
from dagwright.interfaces.cli.output import Output
from dagwright.interfaces.cli.requests import AskRequest
from dagwright.settings import Settings, load_settings

FOLDER = Path(__file__).parent
REQUEST = "How much did the regions sell together? Each has a text file in the folder data/."
USUAL_MODEL = "gpt-4o-mini"
MODEL_VARIABLES = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "LITELLM_PROXY_API_KEY", "LITELLM_PROXY_BASE_URL")


def demo(output: Output) -> int:
    """Asks, and returns the exit code of the run."""
    settings = command_settings().model_copy(update={"files_root": FOLDER / "file-fan-out"})
    request = AskRequest(REQUEST)
    if settings.llm_api_key is not None or settings.llm_base_url is not None:
        model = settings.model or USUAL_MODEL
        where = f" at {settings.llm_base_url}" if settings.llm_base_url is not None else ""
        output.say(f"{model}{where} plans; to see the same without a model, unset {set_here()}\n\nrequest: {REQUEST}")
        return ask_with(request, settings.model_copy(update={"model": model}), output)
    output.say(f"no OPENAI_API_KEY is set, so a script plays the model\n\nrequest: {REQUEST}")
    with _scripted_model() as address:
        return ask_with(request, _with_model_at(address, settings), output)


def set_here() -> str:
    """Returns the variables that name a model service in this environment."""
    return " and ".join(name for name in MODEL_VARIABLES if os.environ.get(name))


def _with_model_at(address: str, settings: Settings) -> Settings:
    changed = {"openai_base_url": address, "openai_api_key": SecretStr("none"), "model": "scripted-model"}
    return settings.model_copy(update=changed)


@contextmanager
def _scripted_model() -> Iterator[str]:
    """Serves the script in a process of its own for as long as the block lasts; gives its address."""
    command = [sys.executable, "-m", "dagwright.testing", str(FOLDER / "ask" / "script.yaml")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


if __name__ == "__main__":
    leave(guarded(lambda: demo(Output()), Output(), settings=load_settings))
