"""Run many cases at once against one server and one worker process, and report the failures."""

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
from tests.support.json_places import places_of, replace_at
from tests.support.runs import Handle, Runs, serving_runs

AT_ONCE = 12
BATCH = 40
"""Cases that one seed makes."""
_BOUND_S = 90.0
"""Much more than a run and its checks need on a busy machine; the deadline of a run is 4 s."""

REFUSED = "refused"


@dataclass(frozen=True)
class Failure:
    """A case that did not hold.

    Args:
        seed, number: which case of which batch.
    """

    seed: int
    number: int
    case: Case
    error: BaseException

    def __str__(self) -> str:
        return f"seed {self.seed}, case {self.number}: {self.error}\n{self.case.to_text()}"


@dataclass
class Tally:
    """Results of a session: counts of ends by kind, and the failures."""

    ends: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)

    @property
    def count(self) -> int:
        """Count of the cases that were run."""
        return sum(self.ends.values()) + len(self.failures)


@dataclass(frozen=True)
class Session:
    """One server and its workers: one that caches workflows, and one that does not."""

    cached: Runs
    uncached: Runs

    async def run(self, case: Case) -> str:
        """Run one case; return how it ended.

        Raises:
            AssertionError: something does not hold.
        """
        runs = self.cached if case.workflow_cache else self.uncached
        async with asyncio.timeout(_BOUND_S):
            handle = await _start(runs, case)
            if handle is None:
                return REFUSED
            await asyncio.gather(*(_send(handle, message) for message in case.messages))
            return await check_run(runs.client, handle, may_be_bug=case.form == "compiled")

    async def run_batch(self, number: int, tally: Tally, *, only: Callable[[int], bool] = lambda _: True) -> None:
        """Run all cases of a seed, many at once."""
        turns = asyncio.Semaphore(AT_ONCE)

        async def run(position: int, case: Case) -> None:
            async with turns:
                try:
                    tally.ends[f"{case.form} {await self.run(case)}"] += 1
                # Any unexpected exception of a case is a finding.
                except (Exception, asyncio.CancelledError) as error:
                    tally.failures.append(Failure(number, position, case, error))

        made = cases_of(number)
        await asyncio.gather(*(run(position, case) for position, case in enumerate(made) if only(position)))


def cases_of(number: int) -> list[Case]:
    """Return the cases of a seed, which change only if the strategies change."""
    made: list[Case] = []

    @seed(number)
    @settings(
        max_examples=BATCH,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(cases())
    def make(case: Case) -> None:
        if case not in made:
            made.append(case)

    make()
    return made


@asynccontextmanager
async def session(client: Client, folder: Path) -> AsyncIterator[Session]:
    """Serve the tools of the fuzzer as long as the block lasts."""
    async with AsyncExitStack() as stack:
        cached, uncached = [
            await stack.enter_async_context(
                serving_runs(client, registry(), settings=Settings(state_dir=folder / name), workflow_cache=is_cached)
            )
            for name, is_cached in (("cached", True), ("uncached", False))
        ]
        yield Session(cached, uncached)


async def run_for(
    found: Session,
    *,
    seconds: float,
    first_seed: int,
    report: Callable[[Tally, int], None],
    last_seed: float = math.inf,
) -> Tally:
    """Run batch after batch until the time is over or the last seed is done; call `report` after each batch.

    Returns:
        Tally of all cases up to a number of seeds that depends on the time alone.
    """
    tally, number, end = Tally(), first_seed, time.monotonic() + seconds
    while time.monotonic() < end and number <= last_seed:
        await found.run_batch(number, tally)
        report(tally, number)
        number += 1
    return tally


async def _start(runs: Runs, case: Case) -> Handle | None:
    """Start the run of a case; `None` if the start was rejected with a proper error."""
    if case.form == "payloads":
        return await runs.start_raw(*map(payload_of, case.content))
    if case.form == "client":
        inputs, context = (_object(case.fields.get(name)) for name in ("inputs", "context"))
        try:
            return await runs.start(
                case.content, inputs=inputs, context=context, deadline_s=parse_duration(DEADLINE).total_seconds()
            )
        except PlanInvalid as invalid:
            refused = invalid
        assert refused.problems
        assert all(problem.code and problem.message for problem in refused.problems)
        return None
    message = {**case.fields}
    if isinstance(message.setdefault("options", {}), dict):
        message["options"] = {**message["options"], "deadline": DEADLINE}
    if case.form == "raw":
        return await runs.start_raw(json_payload({"plan": case.content, **message}))
    compiled = _changed_plan(runs, case)
    return None if compiled is None else await runs.start_raw(json_payload({"compiled": compiled, **message}))


def _changed_plan(runs: Runs, case: Case) -> Any:
    """Return the compiled plan of a case with its changes, `None` if the plan cannot be compiled."""
    try:
        checked = check_plan(case.content["plan"], runs.tools)
        given = dict.fromkeys(checked.inputs, "x")
        compiled: Any = plan_to_json(prepare_plan(checked, given))
    except PlanInvalid:
        return None
    for where, value in case.content["changes"]:
        places = places_of(compiled)
        compiled = replace_at(compiled, places[int(where * len(places))], value)
    return compiled


def _object(value: Any) -> dict[str, Any]:
    """Return an object: the client accepts nothing else."""
    return value if isinstance(value, dict) else {}


async def _send(handle: Handle, message: Message) -> None:
    await asyncio.sleep(message.after_ms / 1000)
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
        # The run had ended, or rejected the message: the sender gets an error, and there must be no other effect.
        return
