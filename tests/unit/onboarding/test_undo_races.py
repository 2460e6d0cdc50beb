"""Concurrent calls and undos, and killed processes: results agree, and no change is partial."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from threading import Barrier

import pytest

from dagwright_onboarding.database import EntityDatabase
from dagwright_onboarding.overview import read_overview
from dagwright_onboarding.verb_results import CbuRequest, CbuResult, UndoResult
from dagwright_onboarding.verbs import OnboardingVerbs

pytestmark = pytest.mark.waits

ROOT = Path(__file__).parents[3]
REPETITIONS = 25

ENSURE_PROGRAM = """
import sys
from dagwright_onboarding.database import EntityDatabase
from dagwright_onboarding.verb_results import CbuRequest
from dagwright_onboarding.verbs import OnboardingVerbs

url, process_name = sys.argv[1:]
verbs = OnboardingVerbs(EntityDatabase(url))
print("ready", flush=True)
for line in sys.stdin:
    fund = verbs.ensure_cbu(f"{process_name}-{line.strip()}", CbuRequest(f"Apex {line.strip()}", "LU"))
    print(fund.id, fund.created, flush=True)
"""

KILLED_PROGRAM = """
import sys
from sqlalchemy import event
from sqlalchemy.orm import Session
from dagwright_onboarding.database import EntityDatabase
from dagwright_onboarding.onboarding import onboarding_tools
from dagwright_onboarding.verb_results import CbuRequest
from dagwright_onboarding.verbs import OnboardingVerbs

url, call, event_name = sys.argv[1:]
database = EntityDatabase(url)
verbs = OnboardingVerbs(database)
manco = verbs.create_limited_company("manco", name="ManCo", jurisdiction="LU")

def wait_for_kill(*_):
    print("in transaction", flush=True)
    sys.stdin.readline()

if call == "undo":
    verbs.ensure_cbu("k", CbuRequest("Apex", "LU", manco_id=manco.id))
event.listen(Session, event_name, wait_for_kill)
if call == "undo":
    verbs.undo("k")
else:
    verbs.ensure_cbu("k", CbuRequest("Apex", "LU", manco_id=manco.id))
"""


@contextmanager
def child_process(program: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    child = subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def read_line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def write_line(child: subprocess.Popen[str], text: str) -> None:
    assert child.stdin is not None
    child.stdin.write(f"{text}\n")
    child.stdin.flush()


def test_processes_that_create_the_same_fund_at_once_get_the_same_fund(database_url: str) -> None:
    with ExitStack() as stack:
        children = [stack.enter_context(child_process(ENSURE_PROGRAM, database_url, name)) for name in "abc"]
        assert [read_line(child) for child in children] == ["ready"] * 3
        # In the first repetition, all processes create the tables.
        for number in range(REPETITIONS):
            for child in children:
                write_line(child, str(number))
            results = [read_line(child).split() for child in children]
            assert len({fund for fund, _ in results}) == 1
            assert sorted(created for _, created in results) == ["False"] * 2 + ["True"]
        for child in children:
            _, errors = child.communicate(timeout=60)
            # A process logs that it waits, if another process takes long to create the tables.
            assert [line for line in errors.splitlines() if "migrating the database" not in line] == []
            assert child.returncode == 0


TwoVerbs = tuple[OnboardingVerbs, OnboardingVerbs]


@pytest.fixture
def two_verbs(database: EntityDatabase, database_url: str) -> Iterator[TwoVerbs]:
    """Verbs on two database objects, as in two processes: each object permits a single writing thread at a time."""
    second_database = EntityDatabase(database_url)
    yield OnboardingVerbs(database), OnboardingVerbs(second_database)
    second_database.dispose()


def run_concurrently(*calls: Callable[[], object]) -> list[object]:
    """Start the calls at the same time. Return the result of each call, or the text of its `ValueError`."""
    barrier = Barrier(len(calls))

    def run(call: Callable[[], object]) -> object:
        barrier.wait()
        try:
            return call()
        except ValueError as error:
            return str(error)

    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(run, calls))


def test_fund_is_undone_or_used_but_never_both(two_verbs: TwoVerbs) -> None:
    first_verbs, second_verbs = two_verbs
    for number in range(REPETITIONS):
        fund = first_verbs.ensure_cbu(f"fund-{number}", CbuRequest(f"Apex {number}", "LU"))
        undo_result, product_result = run_concurrently(
            partial(first_verbs.undo, f"fund-{number}"),
            partial(second_verbs.add_product, f"p-{number}", cbu_id=fund.id, product="CUSTODY"),
        )
        if isinstance(undo_result, UndoResult):
            assert undo_result.reverted == [f"fund 'Apex {number}' (LU) was removed"]
            assert product_result == f"cbu-id: no party has the id {fund.id!r}"
        else:
            assert undo_result == f"fund 'Apex {number}' (LU) cannot be undone: used later by cbu.add-product"
            assert second_verbs.get_cbu(fund.id).products == ["CUSTODY"]


def test_fund_returned_during_an_undo_exists(two_verbs: TwoVerbs) -> None:
    first_verbs, second_verbs = two_verbs
    for number in range(REPETITIONS):
        request = CbuRequest(f"Apex {number}", "LU")
        fund = first_verbs.ensure_cbu(f"a-{number}", request)
        undo_result, second_result = run_concurrently(
            partial(first_verbs.undo, f"a-{number}"), partial(second_verbs.ensure_cbu, f"b-{number}", request)
        )
        assert isinstance(second_result, CbuResult)
        assert second_verbs.get_cbu(second_result.id).name == f"Apex {number}"
        assert isinstance(undo_result, UndoResult) == second_result.created == (second_result.id != fund.id)


def test_concurrent_undo_leaves_no_changes(database: EntityDatabase, two_verbs: TwoVerbs) -> None:
    first_verbs, second_verbs = two_verbs
    overview_before = read_overview(database)
    for number in range(REPETITIONS):
        create_fund = partial(first_verbs.ensure_cbu, f"k-{number}", CbuRequest(f"Apex {number}", "LU"))
        run_concurrently(create_fund, *[partial(second_verbs.undo, f"k-{number}")] * 2)
        assert read_overview(database) == overview_before
        with pytest.raises(ValueError, match="was undone"):
            create_fund()


def test_concurrent_links_of_two_related_funds_create_a_single_link(two_verbs: TwoVerbs) -> None:
    first_verbs, second_verbs = two_verbs
    for number in range(REPETITIONS):
        first_id, second_id = (
            first_verbs.ensure_cbu(f"{name}-{number}", CbuRequest(f"{name} {number}", "LU")).id for name in ("A", "B")
        )
        run_concurrently(
            partial(first_verbs.link, f"ab-{number}", cbu_id=first_id, entity_id=second_id, link="RELATED"),
            partial(second_verbs.link, f"ba-{number}", cbu_id=second_id, entity_id=first_id, link="RELATED"),
        )
        assert first_verbs.get_cbu(first_id).related_to == [second_id]


def test_concurrent_removals_of_a_role_remove_it_once(two_verbs: TwoVerbs) -> None:
    fund = two_verbs[0].ensure_cbu("fund", CbuRequest("Apex", "LU")).id
    person = two_verbs[0].create_person("person", name="Ann").id
    role = {"cbu_id": fund, "entity_id": person, "role": "DIRECTOR"}
    for number in range(REPETITIONS):
        two_verbs[0].assign_role(f"assign-{number}", **role)
        calls = [
            partial(verbs.remove_role, f"remove-{index}-{number}", **role) for index, verbs in enumerate(two_verbs)
        ]
        results = sorted(str(getattr(result, "removed", result)) for result in run_concurrently(*calls))
        assert results == ["False", "True"]


@pytest.mark.parametrize(("call", "event_name"), [("ensure", "before_commit"), ("undo", "after_flush")])
def test_process_killed_in_a_transaction_leaves_no_partial_change(
    database_url: str, call: str, event_name: str
) -> None:
    with child_process(KILLED_PROGRAM, database_url, call, event_name) as child:
        assert read_line(child) == "in transaction"
    database = EntityDatabase(database_url)
    try:
        verbs = OnboardingVerbs(database)
        names = [row.subject for row in read_overview(database).rows]
        assert names == (["ManCo"] if call == "ensure" else ["ManCo", "Apex", "Apex (LU)"])
        manco = verbs.create_limited_company("manco", name="ManCo", jurisdiction="LU")
        if call == "ensure":
            cbu = verbs.ensure_cbu("k", CbuRequest("Apex", "LU", manco_id=manco.id))
            assert (cbu.created, cbu.linked) == (True, True)
        assert len(verbs.undo("k").reverted) == 2
        assert [row.subject for row in read_overview(database).rows] == ["ManCo"]
    finally:
        database.dispose()
