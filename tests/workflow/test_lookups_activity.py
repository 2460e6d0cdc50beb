"""The activity that binds lookups, run in Temporal's own activity environment."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities import resolve_lookups
from activities.resolve_lookups import lookup_activity
from dagwright.entities.database import EntityDatabase
from dagwright.entities.loading import load_parties

PARTIES = Path(__file__).parents[2] / "examples" / "onboarding" / "parties.csv"


@pytest.fixture
def database(tmp_path: Path) -> Iterator[EntityDatabase]:
    database = EntityDatabase(f"sqlite:///{tmp_path / 'parties.db'}")
    load_parties(database, PARTIES)
    yield database
    database.dispose()


async def test_lookups_are_bound_in_order(database: EntityDatabase) -> None:
    resolve = lookup_activity(database)
    bound = await ActivityEnvironment().run(
        resolve,
        [
            {"search_text": "Sarah Chen", "entity_type": "person"},
            {"search_text": "John Smith", "entity_type": "entity"},
        ],
    )
    assert [(party["name"], party["kind"], party["id"].partition("_")[0]) for party in bound] == [
        ("Sarah Chen", "person", "person"),
        ("John Smith", "person", "person"),
    ]
    assert [sorted(party) for party in bound] == [["id", "kind", "name"]] * 2


async def test_more_parties_than_can_go_along_with_a_run_are_refused_for_good(
    database: EntityDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolve_lookups, "LOOKUPS_LIMIT_BYTES", 100)
    asked = [{"search_text": "Sarah Chen", "entity_type": "person"}] * 2
    with pytest.raises(ApplicationError) as failed:
        await ActivityEnvironment().run(lookup_activity(database), asked)
    assert (failed.value.type, failed.value.non_retryable) == ("too_large", True)
    assert failed.value.message.startswith("the 2 parties that the plan looks up have ")
    assert failed.value.message.endswith(
        "at most 100 can go along with a run: split the plan, and give the parts their parties as inputs"
    )


async def test_all_problems_fail_the_activity_for_good(database: EntityDatabase) -> None:
    resolve = lookup_activity(database)
    with pytest.raises(ApplicationError) as failed:
        await ActivityEnvironment().run(
            resolve,
            [
                {"search_text": "Maria Garcia", "entity_type": "person"},
                {"search_text": "Polaris Partners", "entity_type": "company"},
            ],
        )
    error = failed.value
    assert (error.type, error.non_retryable) == ("lookup_failed", True)
    assert [(problem["index"], problem["code"]) for problem in error.details[0]] == [
        (0, "lookup_ambiguous"),
        (1, "lookup_not_found"),
    ]
    assert [candidate["jurisdiction"] for candidate in error.details[0][0]["candidates"]] == ["ES", "LU"]
