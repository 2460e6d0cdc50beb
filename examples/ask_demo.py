"""`make demo-ask`: a request in words is planned by a model, run, and answered.

If OPENAI_API_KEY or OPENAI_BASE_URL is set, the model of DAGWRIGHT_MODEL plans. Otherwise a script replaces the model
(`examples/ask/script.yaml`). The first line of the output names the model or the script.
"""

from pathlib import Path

from dagwright.plugins.commands import Output, end_process, run_guarded
from dagwright.settings import load_settings
from examples.command_line import DEFAULT_MODEL, names_of_model_variables, run_command, scripted_model

FOLDER = Path(__file__).parent
REQUEST = "How much did the regions sell together? Each has a text file in the folder data/."
FILES_VARIABLES = {"DAGWRIGHT_FILES_ROOT": str(FOLDER / "file-fan-out")}


def demo(output: Output) -> int:
    """Run `dagwright ask` and return its exit code."""
    settings = load_settings()
    if settings.llm_api_key is not None or settings.llm_base_url is not None:
        model = settings.model or DEFAULT_MODEL
        address_note = f" at {settings.llm_base_url}" if settings.llm_base_url is not None else ""
        advice = f"to run the demo without a model, unset {names_of_model_variables()}"
        output.print(f"model: {model}{address_note}; {advice}\n\nrequest: {REQUEST}")
        return run_command("ask", REQUEST, environment={**FILES_VARIABLES, "DAGWRIGHT_MODEL": model})
    output.print(f"no OPENAI_API_KEY is set, so a script plays the model\n\nrequest: {REQUEST}")
    with scripted_model(FOLDER / "ask" / "script.yaml") as variables:
        return run_command("ask", REQUEST, environment={**FILES_VARIABLES, **variables})


if __name__ == "__main__":
    end_process(run_guarded(lambda: demo(Output()), Output(), load_settings=load_settings))
