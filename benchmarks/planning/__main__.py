"""`python -m benchmarks.planning --model M [--base-url U]`: score the plans that a model writes.

Each request is planned as in a run, with the prompt, response format, parser and repair of the checked-out code.
Nothing is executed and no server is needed. The exit code is 1 if a model call failed.
"""

import argparse
import asyncio
import json
import sys
from pathlib import Path

from benchmarks.planning.cases import read_cases
from benchmarks.planning.planned_requests import PlannedRequest, plan_all
from benchmarks.planning.report import report_to_json, score_table
from dagwright.llm import Endpoint, ModelClient
from dagwright.planner import PlanningOptions
from dagwright.planning.model_calls.model_requests import ModelConfig
from dagwright.planning.plan_and_execute.goal_spec import DEFAULT_MAX_PLANS
from dagwright.settings import Settings

DEFAULT_CONCURRENT_REQUESTS = 4


async def measure(options: argparse.Namespace, *, model: str, endpoint: Endpoint) -> list[PlannedRequest]:
    """Return the plans of the model for each request."""
    config = ModelConfig(model=model, temperature=options.temperature, seed=options.seed)
    planning_options = PlanningOptions(config, max_plans=options.repairs + 1)
    async with ModelClient(endpoint, model=model) as client:
        return await plan_all(read_cases(), client, options=planning_options, max_concurrent=options.parallel)


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark and return the exit code."""
    settings = Settings()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planning", description=__doc__)
    parser.add_argument("--model", default=settings.model, help="model to score (default: DAGWRIGHT_MODEL)")
    parser.add_argument(
        "--base-url", default=settings.llm_base_url, help="URL of the provider, which receives OPENAI_API_KEY"
    )
    parser.add_argument(
        "--repairs", type=int, default=DEFAULT_MAX_PLANS - 1, help="maximum number of repairs of a plan"
    )
    parser.add_argument("--temperature", type=float)
    parser.add_argument("--seed", type=int)
    parser.add_argument(
        "--parallel", type=int, default=DEFAULT_CONCURRENT_REQUESTS, help="maximum number of concurrent requests"
    )
    parser.add_argument("--save", type=Path, help="JSON file for the scores and all responses")
    options = parser.parse_args(arguments)
    if not options.model:
        parser.error("no model: pass --model, or set DAGWRIGHT_MODEL")
    if options.repairs < 0 or options.parallel < 1:
        parser.error("--repairs must be at least 0, and --parallel at least 1")
    key = settings.llm_api_key.get_secret_value() if settings.llm_api_key is not None else ""
    planned_requests = asyncio.run(measure(options, model=options.model, endpoint=Endpoint(options.base_url, key)))
    print(f"{options.model}\n\n{score_table(planned_requests)}")
    if options.save is not None:
        text = json.dumps(report_to_json(planned_requests, model=options.model), indent=1, ensure_ascii=False)
        options.save.write_text(text + "\n", encoding="utf-8")
    return 1 if any(each.failure is not None for each in planned_requests) else 0


if __name__ == "__main__":
    sys.exit(main())
