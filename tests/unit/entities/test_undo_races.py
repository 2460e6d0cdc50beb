"""Calls, undos and crashes of several processes and threads at once: one wins, and nothing is half made."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier

import pytest

from dagwright.entities.database import EntityDatabase
from dagwright.entities.overview import read_overview
from dagwright.entities.verb_results import CbuRequest, CbuResult, UndoResult
from dagwright.entities.verbs import OnboardingVerbs

pytestmark = pytest.mark.waits

ROOT = Path(__file__).parents[3]
ROUNDS = 25

SESSION = """
import sys
from dagwright.entities.database import EntityDatabase
from dagwright.entities.verb_results import CbuRequest
from dagwright.entities.verbs import OnboardingVerbs

url, session = sys.argv[1:]
verbs = OnboardingVerbs(EntityDatabase(url))
verbs.ensure_cbu(f"{session}-warm", CbuRequest("Warm", "LU"))
print("ready", flush=True)
for line in sys.stdin:
    made = verbs.ensure_cbu(f"{session}-{line.strip()}", CbuRequest(f"Apex {line.strip()}", "LU"))
    print(made.id, made.created, flush=True)
"""

KILLED = """
import sys
from sqlalchemy import event
from sqlalchemy.orm import Session
from dagwright.entities.database import EntityDatabase
from dagwright.entities.onboarding import onboarding_tools
from dagwright.entities.verb_results import CbuRequest
from dagwright.entities.verbs import OnboardingVerbs

url, call, moment = sys.argv[1:]
database = EntityDatabase(url)
verbs = OnboardingVerbs(database)
manco = verbs.create_limited_company("manco", name="ManCo", jurisdiction="LU")

def stop(*_):
    print("inside", flush=True)
    sys.stdin.readline()

if call == "undo":
    verbs.ensure_cbu("k", CbuRequest("Apex", "LU", manco_id=manco.id))
event.listen(Session, moment, stop)
if call == "undo":
    verbs.undo("k")
else:
    verbs.ensure_cbu("k", CbuRequest("Apex", "LU", manco_id=manco.id))
"""


@contextmanager
def process(program: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    running = subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield running
    finally:
        running.kill()
        running.communicate()


def told(running: subprocess.Popen[str]) -> str:
    assert running.stdout is not None
    return running.stdout.readline().strip()


def tell(running: subprocess.Popen[str], text: str) -> None:
    assert running.stdin is not None
    running.stdin.write(f"{text}\n")
    running.stdin.flush()


def test_two_sessions_that_create_one_fund_at_once_both_get_it(database_url: str) -> None:
    with process(SESSION, database_url, "a") as first, process(SESSION, database_url, "b") as second:
        assert [told(first), told(second)] == ["ready", "ready"]
        for number in range(ROUNDS):
            for running in (first, second):
                tell(running, str(number))
            made = [told(running).split() for running in (first, second)]
            assert made[0][0] == made[1][0]
            assert sorted(created for _, created in made) == ["False", "True"]


def at_once(*calls: object) -> list[object]:
    """Returns what each call gives back, or the text of its ValueError, when all begin together."""
    barrier = Barrier(len(calls))

    def run(call: object) -> object:
        assert callable(call)
        barrier.wait()
        try:
            return call()
        except ValueError as error:
            return str(error)

    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(run, calls))


def test_fund_is_taken_back_or_used_but_never_both(database: EntityDatabase, database_url: str) -> None:
    # Databases of their own, as two processes have: one lets only one of its threads write at a time.
    other = EntityDatabase(database_url)
    one, two = OnboardingVerbs(database), OnboardingVerbs(other)
    try:
        for number in range(ROUNDS):
            fund = one.ensure_cbu(f"fund-{number}", CbuRequest(f"Apex {number}", "LU"))
            undone, used = at_once(
                lambda number=number: one.undo(f"fund-{number}"),
                lambda number=number, fund=fund: two.add_product(f"p-{number}", cbu_id=fund.id, product="CUSTODY"),
            )
            if isinstance(undone, UndoResult):
                assert undone.reverted == [f"fund 'Apex {number}' (LU) is gone"]
                assert used == f"cbu-id: no party has the id {fund.id!r}"
            else:
                assert undone == f"fund 'Apex {number}' (LU) stays: a cbu.add-product has used it since"
                assert two.get_cbu(fund.id).products == ["CUSTODY"]
    finally:
        other.dispose()


def test_fund_that_somebody_gets_back_is_there_whatever_is_undone(database: EntityDatabase, database_url: str) -> None:
    other = EntityDatabase(database_url)
    one, two = OnboardingVerbs(database), OnboardingVerbs(other)
    try:
        for number in range(ROUNDS):
            request = CbuRequest(f"Apex {number}", "LU")
            fund = one.ensure_cbu(f"a-{number}", request)
            undone, got = at_once(
                lambda number=number: one.undo(f"a-{number}"),
                lambda number=number, request=request: two.ensure_cbu(f"b-{number}", request),
            )
            assert isinstance(got, CbuResult)
            assert two.get_cbu(got.id).name == f"Apex {number}"
            assert isinstance(undone, UndoResult) == got.created == (got.id != fund.id)
    finally:
        other.dispose()


def test_call_and_its_undo_at_once_leave_nothing(database: EntityDatabase, database_url: str) -> None:
    other = EntityDatabase(database_url)
    one, two = OnboardingVerbs(database), OnboardingVerbs(other)
    before = read_overview(database)
    try:
        for number in range(ROUNDS):
            at_once(
                lambda number=number: one.ensure_cbu(f"k-{number}", CbuRequest(f"Apex {number}", "LU")),
                lambda number=number: two.undo(f"k-{number}"),
                lambda number=number: two.undo(f"k-{number}"),
            )
            assert read_overview(database) == before
            with pytest.raises(ValueError, match="was taken back"):
                one.ensure_cbu(f"k-{number}", CbuRequest(f"Apex {number}", "LU"))
    finally:
        other.dispose()


def test_related_funds_that_link_each_other_at_once_have_one_link(database: EntityDatabase, database_url: str) -> None:
    other = EntityDatabase(database_url)
    one, two = OnboardingVerbs(database), OnboardingVerbs(other)
    try:
        for number in range(ROUNDS):
            ids = [one.ensure_cbu(f"{name}-{number}", CbuRequest(f"{name} {number}", "LU")).id for name in ("A", "B")]
            at_once(
                lambda number=number, ids=ids: one.link(
                    f"ab-{number}", cbu_id=ids[0], entity_id=ids[1], link="RELATED"
                ),
                lambda number=number, ids=ids: two.link(
                    f"ba-{number}", cbu_id=ids[1], entity_id=ids[0], link="RELATED"
                ),
            )
            assert one.get_cbu(ids[0]).related_to == [ids[1]]
    finally:
        other.dispose()


def test_same_role_is_removed_by_one_of_two(database: EntityDatabase, database_url: str) -> None:
    other = EntityDatabase(database_url)
    verbs: Sequence[OnboardingVerbs] = (OnboardingVerbs(database), OnboardingVerbs(other))
    fund = verbs[0].ensure_cbu("fund", CbuRequest("Apex", "LU")).id
    person = verbs[0].create_person("person", name="Ann").id
    try:
        for number in range(ROUNDS):
            verbs[0].assign_role(f"give-{number}", cbu_id=fund, entity_id=person, role="DIRECTOR")
            removed = at_once(
                *(
                    lambda number=number, side=side: (
                        verbs[side]
                        .remove_role(f"take-{side}-{number}", cbu_id=fund, entity_id=person, role="DIRECTOR")
                        .removed
                    )
                    for side in (0, 1)
                )
            )
            assert sorted(map(str, removed)) == ["False", "True"]
    finally:
        other.dispose()


@pytest.mark.parametrize("moment", ["after_flush", "before_commit"])
@pytest.mark.parametrize("call", ["ensure", "undo"])
def test_process_that_is_killed_in_a_transaction_leaves_nothing_half_made(
    database_url: str, call: str, moment: str
) -> None:
    with process(KILLED, database_url, call, moment) as running:
        assert told(running) == "inside"
    database = EntityDatabase(database_url)
    try:
        verbs = OnboardingVerbs(database)
        names = [row.subject for row in read_overview(database).rows]
        assert names == (["ManCo"] if call == "ensure" else ["ManCo", "Apex", "Apex (LU)"])
        manco = verbs.create_limited_company("manco", name="ManCo", jurisdiction="LU")
        if call == "ensure":
            made = verbs.ensure_cbu("k", CbuRequest("Apex", "LU", manco_id=manco.id))
            assert (made.created, made.linked) == (True, True)
        assert len(verbs.undo("k").reverted) == 2
        assert [row.subject for row in read_overview(database).rows] == ["ManCo"]
    finally:
        database.dispose()
