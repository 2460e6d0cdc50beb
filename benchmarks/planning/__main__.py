"""`python -m benchmarks.planning --model M [--base-url U]`: scores the plans that a model writes.

Each request is planned for as a run does it, with the prompt, the response format, the reading and the repair of the
code that is checked out. Nothing runs and no server is needed. Exit code 1 if a request could not be asked about.
"""

import argparse
import asyncio
import json
import sys
from pathlib import Path

from benchmarks.planning.asking import Planned, plan_all
from benchmarks.planning.cases import read_cases
from benchmarks.planning.report import report, table
from dagwright.llm import Endpoint, ModelClient
from dagwright.planner import Asked
from dagwright.planning.model_calls.calls import ModelConfig
from dagwright.planning.plan_and_execute.goals import MOST_PLANS
from dagwright.settings import Settings

PARALLEL = 4


async def measure(options: argparse.Namespace, *, model: str, endpoint: Endpoint) -> list[Planned]:
    """Returns what the model makes of each request."""
    config = ModelConfig(model=model, temperature=options.temperature, seed=options.seed)
    asked = Asked(config, plans=options.repairs + 1)
    async with ModelClient(endpoint, model=model) as client:
        return await plan_all(read_cases(), client, asked=asked, parallel=options.parallel)


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit code."""
    settings = Settings()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planning", description=__doc__)
    parser.add_argument("--model", default=settings.model, help="what is asked; DAGWRIGHT_MODEL without it")
    parser.add_argument("--base-url", default=settings.llm_base_url, help="the service; it gets OPENAI_API_KEY")
    parser.add_argument("--repairs", type=int, default=MOST_PLANS - 1, help="how often it may mend a plan")
    parser.add_argument("--temperature", type=float)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--parallel", type=int, default=PARALLEL, help="requests at one time")
    parser.add_argument("--save", type=Path, help="a file for the scores and all that the model wrote, as JSON")
    options = parser.parse_args(arguments)
    if not options.model:
        parser.error("no model is named; give --model, or set DAGWRIGHT_MODEL")
    if options.repairs < 0 or options.parallel < 1:
        parser.error("--repairs is at least 0, and --parallel at least 1")
    key = settings.llm_api_key.get_secret_value() if settings.llm_api_key is not None else ""
    planned = asyncio.run(measure(options, model=options.model, endpoint=Endpoint(options.base_url, key)))
    print(f"{options.model}\n\n{table(planned)}")
    if options.save is not None:
        text = json.dumps(report(planned, model=options.model), indent=1, ensure_ascii=False)
        options.save.write_text(text + "\n", encoding="utf-8")
    return 1 if any(each.failure is not None for each in planned) else 0


if __name__ == "__main__":
    sys.exit(main())
