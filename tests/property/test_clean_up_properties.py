"""The clean-up of the store is compared with a model of a namespace: runs, executions, sub-plans and payloads."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from dagwright.store.clean_up import (
    MARGIN,
    ListedRun,
    NamespaceRetention,
    RemovalCutoff,
    RetentionUnknown,
    removal_cutoff,
)
from tests.support.example_counts import example_count

START = datetime(2026, 1, 1, tzinfo=UTC)
NAMESPACE_ID = "32049b68-7872-4094-8e63-d0dd59896a83"
HOURS = st.integers(0, 24 * 300).map(lambda hours: timedelta(hours=hours))
SKEW = st.integers(-11, 11).map(lambda hours: timedelta(hours=hours))


@dataclass(frozen=True)
class Execution:
    """One execution, as the server lists it.

    Args:
        closed_at: end of the execution; `None` if the execution is open.
    """

    run: ListedRun
    closed_at: datetime | None


@dataclass(frozen=True)
class Tree:
    """A run with its executions and sub-plans, and the put times of their payloads by the clock of the store."""

    executions: list[Execution]
    put_times: list[datetime]


@st.composite
def chains(draw: st.DrawFn, name: str, *, started: datetime, root_id: str | None) -> list[Execution]:
    """Return one to three executions of a workflow ID, connected by continue-as-new; the last execution may be open."""
    executions: list[Execution] = []
    at = started
    for number in range(draw(st.integers(1, 3))):
        ended = at + draw(HOURS)
        knows_chain_start = number > 0 and draw(st.booleans())
        chain_start = {"chain_started_at": started} if knows_chain_start else {}
        run = ListedRun(name, f"{name}-{number}", f"{name}-0", at, **chain_start, root_id=root_id)
        executions.append(Execution(run, ended))
        at = ended
    if draw(st.booleans()):
        executions[-1] = Execution(executions[-1].run, None)
    return executions


@st.composite
def trees(draw: st.DrawFn, name: str, *, end: datetime) -> Tree:
    """Return a run, up to two sub-plans that start during the run and may end after the run, and their payloads."""
    started = START + draw(HOURS)
    executions = draw(chains(name, started=started, root_id=None))
    root_end = executions[-1].closed_at or end
    for number in range(draw(st.integers(0, 2))):
        child_start = draw(
            st.sampled_from([started, started + (max(root_end, started) - started) / 2, max(root_end, started)])
        )
        executions += draw(chains(f"{name}/{number}", started=child_start, root_id=name))
    last_end = max(execution.closed_at or end for execution in executions)
    fractions = [0.0, *draw(st.lists(st.floats(0, 1), max_size=3))]
    put_times = [started + (max(last_end, started) - started) * fraction + draw(SKEW) for fraction in fractions]
    return Tree(executions, put_times)


def cutoff_of(runs: list[ListedRun], retention: timedelta, *, now: datetime) -> RemovalCutoff:
    namespace = NamespaceRetention("default", NAMESPACE_ID, retention, runs)
    return removal_cutoff(namespace, owner_namespaces=[NAMESPACE_ID], now=now)


@settings(max_examples=example_count(100), deadline=None)
@given(st.data())
def test_payloads_of_retained_runs_are_not_removed(data: st.DataObject) -> None:
    now = START + data.draw(HOURS) + timedelta(days=200)
    retention = timedelta(days=data.draw(st.sampled_from([1, 30, 90])))
    forest = [data.draw(trees(f"run-{number}", end=now)) for number in range(data.draw(st.integers(0, 2)))]
    lag = timedelta(hours=data.draw(st.integers(0, 11)))

    def is_listed_at(time: datetime, execution: Execution) -> bool:
        has_started, closed_at = execution.run.started_at <= time, execution.closed_at
        return has_started and (closed_at is None or closed_at + retention > time)

    # The server lists a run from `lag` after its start until `retention + lag` after its end.
    executions = [execution for tree in forest for execution in tree.executions]
    listed_runs = [execution.run for execution in executions if is_listed_at(now - lag, execution)]
    retained_trees = [tree for tree in forest if any(is_listed_at(now, execution) for execution in tree.executions)]
    put_times = [put_time for tree in retained_trees for put_time in tree.put_times]
    needed_put_times = [put_time for put_time in put_times if put_time <= now + timedelta(hours=11)]
    try:
        cutoff = cutoff_of(listed_runs, retention, now=now)
    except RetentionUnknown:
        # This happens only if a listed run depends on a run that is not listed.
        assert any(run.root_id or run.first_execution_id != run.execution_id for run in listed_runs)
        return
    assert [put_time for put_time in needed_put_times if put_time < cutoff.time] == []
    earliest_start = min((run.earliest_start for run in listed_runs), default=now)
    assert cutoff.time == min(now - retention, earliest_start) - MARGIN


RUN = ListedRun("a", "a-0", "a-0", START)


@settings(deadline=None)
@given(st.permutations([RUN, ListedRun("b", "b-0", "b-0", START + MARGIN), ListedRun("c", "c-0", "c-0", START)]))
def test_removal_cutoff_does_not_depend_on_the_order_of_the_runs(runs: list[ListedRun]) -> None:
    cutoff = cutoff_of(runs, timedelta(days=1), now=START + timedelta(days=50))
    assert cutoff.time == START - MARGIN
    assert cutoff.reason == "the run 'a', which started one day after this time, is still listed"
