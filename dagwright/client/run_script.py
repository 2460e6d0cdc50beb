"""`dagwright.run`: run one plan from a script or a notebook."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from dagwright.client.client import Client
from dagwright.client.options import StartOptions
from dagwright.client.plan_starts import PlanSource, plan_tools
from dagwright.client.results import RunResult
from dagwright.client.wait_notices import print_requests
from dagwright.core.boundary.arguments import checks_arguments
from dagwright.logging import configure_default_logging
from dagwright.process.loop_thread import LoopThread
from dagwright.settings import Settings, load_settings
from dagwright.toolset.program_tools import AgentSource, ToolSource
from dagwright.worker.worker import Worker


@checks_arguments
def run(  # noqa: PLR0913 - parts of a run, passed by keyword
    plan: PlanSource,
    *,
    inputs: Mapping[str, Any] | None = None,
    tools: Sequence[ToolSource] = (),
    agents: Sequence[AgentSource] = (),
    run_id: str | None = None,
    raise_on_failure: bool = True,
    settings: Settings | None = None,
    **options: Unpack[StartOptions],
) -> RunResult:
    """Run a plan to its end on the server that `Client.connect` finds or starts, with a worker in this process.

    The call blocks until the run ends, also in a notebook. A request for feedback is printed to stderr, with the ways
    to answer it from another terminal or program. To continue the run after Ctrl-C, repeat the call with the same
    `run_id`.

    Args:
        plan: as in `Client.start`.
        inputs: as in `Client.start`.
        run_id: as in `Client.start`.
        tools: tools of the worker besides those added to a `Plan`; as in `Worker`.
        agents: agents of the worker; as in `Worker`.
        **options: as in `Client.start`.
        raise_on_failure: raise if the run does not complete.

    Returns:
        The result of the run, with `.output` and, for example, `.nodes["gross"].result`.

    Raises:
        RunFailed: the run failed; `.failures` has the reasons.
        RunCancelled: the run was cancelled.
        PlanInvalid: the plan or its inputs are invalid.
        RunIdInUse: the ID belongs to a run with another plan, other inputs or another model.
        OptionInvalid: an option is invalid.
        ToolLoadError: an object is not a tool or an agent, or two of them have the same name.
        ServerUnreachable: no server can be reached or started.
        SettingsError: an environment variable is invalid.
    """
    run_settings = settings or load_settings()
    # Failures are reported by the result, so their warnings are not logged.
    configure_default_logging(run_settings, level="error")
    logging.getLogger("dagwright.client").setLevel(logging.WARNING)
    all_tools = [*tools, *plan_tools(plan)]

    async def run_to_end() -> RunResult:
        async with Client.connect(settings=run_settings) as client, Worker(client, all_tools, agents):
            started_run = await client.start(plan, inputs=inputs, run_id=run_id, **options)
            return await print_requests(started_run, started_run.result(raise_on_failure=raise_on_failure))

    with LoopThread() as loop:
        return loop.run(run_to_end())
