"""Run many cases concurrently against one server, and collect the failures."""

import asyncio
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from temporalio.client import Client, WorkflowUpdateFailedError
from temporalio.client import WorkflowQueryFailedError as QueryFailed
from temporalio.service import RPCError

from dagwright.core.errors import PlanInvalid
from dagwright.core.model.compiled import plan_to_json
from dagwright.core.model.times import parse_duration
from dagwright.plans.preparation import check_plan, prepare_plan
from dagwright.settings import Settings
from tests.fuzz.cases import DEADLINE, Case, Message, cases, json_payload, payload_of
from tests.fuzz.checks import check_run
from tests.fuzz.tools import registry
from tests.support.json_paths import paths_of, replace_at
from tests.support.runs import Handle, Runs, serving_runs

MAX_CONCURRENT_CASES = 12
BATCH_SIZE = 40
"""Maximum number of cases of one seed."""
_CASE_TIMEOUT_S = 90.0
"""Timeout of a run and its checks. The deadline of a run is 4 s, and the checks take longer on a busy machine."""

REJECTED = "rejected"


@dataclass(frozen=True)
class Failure:
    """A case in which an invariant was violated.

    Args:
        seed: the seed of the batch.
        position: position of the case in the batch.
    """

    seed: int
    position: int
    case: Case
    error: BaseException

    def __str__(self) -> str:
        return f"seed {self.seed}, case {self.position}: {self.error}\n{self.case.to_text()}"


@dataclass
class Tally:
    """Results of a session: number of cases by outcome, and the failures."""

    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)

    @property
    def count(self) -> int:
        return sum(self.outcomes.values()) + len(self.failures)


@dataclass(frozen=True)
class Session:
    """A session runs cases on two workers. One worker caches workflows, and the other does not."""

    runs_with_cache: Runs
    runs_without_cache: Runs

    async def run(self, case: Case) -> str:
        """Run one case; return the final status of its run, or `REJECTED`.

        Raises:
            AssertionError: an invariant is violated.
        """
        runs = self.runs_with_cache if case.uses_workflow_cache else self.runs_without_cache
        async with asyncio.timeout(_CASE_TIMEOUT_S):
            handle = await _start(runs, case)
            if handle is None:
                return REJECTED
            await asyncio.gather(*(_send(handle, message) for message in case.messages))
            return await check_run(runs.client, handle, may_have_internal_error=case.form == "compiled")

    async def run_batch(
        self, batch_seed: int, tally: Tally, *, is_selected: Callable[[int], bool] = lambda _: True
    ) -> None:
        """Run the cases of a seed concurrently.

        Args:
            is_selected: return whether to run the case at a position.
        """
        slots = asyncio.Semaphore(MAX_CONCURRENT_CASES)

        async def run(position: int, case: Case) -> None:
            async with slots:
                try:
                    tally.outcomes[f"{case.form} {await self.run(case)}"] += 1
                # Any unexpected exception of a case is a finding.
                except (Exception, asyncio.CancelledError) as error:
                    tally.failures.append(Failure(batch_seed, position, case, error))

        batch = cases_of(batch_seed)
        await asyncio.gather(*(run(position, case) for position, case in enumerate(batch) if is_selected(position)))


def cases_of(batch_seed: int) -> list[Case]:
    """Return the cases of a seed. A seed gives the same cases until the strategies change."""
    generated_cases: list[Case] = []

    @seed(batch_seed)
    @settings(
        max_examples=BATCH_SIZE,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(cases())
    def collect_case(case: Case) -> None:
        if case not in generated_cases:
            generated_cases.append(case)

    collect_case()
    return generated_cases


@asynccontextmanager
async def open_session(client: Client, folder: Path) -> AsyncIterator[Session]:
    """Serve the tools of the fuzzer during the block, and yield a session."""
    async with AsyncExitStack() as stack:
        runs_with_cache, runs_without_cache = [
            await stack.enter_async_context(
                serving_runs(
                    client, registry(), settings=Settings(state_dir=folder / name), has_workflow_cache=is_cached
                )
            )
            for name, is_cached in (("cached", True), ("uncached", False))
        ]
        yield Session(runs_with_cache, runs_without_cache)


async def run_for(
    session: Session,
    *,
    seconds: float,
    first_seed: int,
    report: Callable[[Tally, int], None],
    last_seed: float = math.inf,
) -> Tally:
    """Run one batch after another until the time is over or the last seed is done; call `report` after each batch."""
    tally, batch_seed, end_time = Tally(), first_seed, time.monotonic() + seconds
    while time.monotonic() < end_time and batch_seed <= last_seed:
        await session.run_batch(batch_seed, tally)
        report(tally, batch_seed)
        batch_seed += 1
    return tally


async def _start(runs: Runs, case: Case) -> Handle | None:
    """Start the run of a case; return `None` if its plan was rejected with codes and messages."""
    if case.form == "payloads":
        return await runs.start_raw(*map(payload_of, case.content))
    if case.form == "client":
        inputs, context = (_object_or_empty(case.fields.get(name)) for name in ("inputs", "context"))
        try:
            return await runs.start(
                case.content, inputs=inputs, context=context, deadline_s=parse_duration(DEADLINE).total_seconds()
            )
        except PlanInvalid as invalid:
            problems = invalid.problems
        assert problems
        assert all(problem.code and problem.message for problem in problems)
        return None
    run_input = {**case.fields}
    if isinstance(run_input.setdefault("options", {}), dict):
        run_input["options"] = {**run_input["options"], "deadline": DEADLINE}
    if case.form == "raw":
        return await runs.start_raw(json_payload({"plan": case.content, **run_input}))
    compiled = _changed_plan(runs, case)
    return None if compiled is None else await runs.start_raw(json_payload({"compiled": compiled, **run_input}))


def _changed_plan(runs: Runs, case: Case) -> Any:
    """Return the compiled plan of a case with its changes, or `None` if the plan cannot be compiled."""
    try:
        checked_plan = check_plan(case.content["plan"], runs.tools)
        inputs = dict.fromkeys(checked_plan.inputs, "x")
        compiled: Any = plan_to_json(prepare_plan(checked_plan, inputs))
    except PlanInvalid:
        return None
    for fraction, value in case.content["changes"]:
        paths = paths_of(compiled)
        compiled = replace_at(compiled, paths[int(fraction * len(paths))], value)
    return compiled


def _object_or_empty(value: Any) -> dict[str, Any]:
    """Return the value if it is an object, otherwise an empty object: the client accepts only objects."""
    return value if isinstance(value, dict) else {}


async def _send(handle: Handle, message: Message) -> None:
    await asyncio.sleep(message.delay_ms / 1000)
    arguments: Sequence[Any] = [payload_of(payload) for payload in message.payloads]
    try:
        if message.kind == "signal":
            await handle.signal(message.name, args=arguments)
        elif message.kind == "update":
            await handle.execute_update(message.name, args=arguments)
        elif message.kind == "query":
            await handle.query(message.name, args=arguments)
        else:
            await handle.cancel()
    except (RPCError, WorkflowUpdateFailedError, QueryFailed, UnicodeEncodeError):
        # The run had ended, or rejected the message.
        return
