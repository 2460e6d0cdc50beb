"""The onboarding examples against a store, intent by intent in the order written, without an engine."""

import json
from pathlib import Path
from typing import Any

import pytest

from dagwright.entities.binding import bind_parties
from dagwright.entities.database import EntityDatabase
from dagwright.entities.gateway import SqlEntityGateway
from dagwright.entities.loading import load_parties
from dagwright.entities.onboarding import onboarding_tools
from dagwright.entities.overview import RowSort, changed_rows, read_overview
from dagwright.entities.resolution import PartySearch, Wanted
from dagwright.tools.testing import tool_context

EXAMPLES = Path(__file__).parents[3] / "examples" / "onboarding"


def perform(database: EntityDatabase, example: str, *, run: str) -> list[dict[str, Any]]:
    """Binds all lookups, or returns why not; then calls the verbs one after the other, with a key for each intent."""
    intents = json.loads((EXAMPLES / example).read_text(encoding="utf-8"))["intents"]
    specs = {spec.name: spec for spec in onboarding_tools(database)}
    asked = [lookup for intent in intents for lookup in (intent["lookups"] or {}).values()]
    gateway = SqlEntityGateway(database)
    found = [PartySearch(gateway, Wanted(**lookup), asks=False).found((), None) for lookup in asked]
    entries = bind_parties(database, found, key=f"{run}-0")
    if problems := [entry["problem"] for entry in entries if "problem" in entry]:
        return problems
    bound = iter(entries)
    lookups = [{key: next(bound)["party"]["id"] for key in intent["lookups"] or {}} for intent in intents]
    results: dict[str, str] = {}
    for number, (intent, ids) in enumerate(zip(intents, lookups, strict=True), start=1):
        refs = {key: results[reference] for key, reference in intent["refs"].items()}
        arguments: dict[str, Any] = intent["params"] | refs | ids
        spec = specs[intent["verb"]]
        assert spec.function is not None
        with tool_context(idempotency_key=f"{run}-{number}"):
            results[f"@result_{number}"] = spec.function(**spec.bind(arguments)).id
    return []


def test_full_onboarding_makes_seven_rows_and_none_when_run_again(database: EntityDatabase) -> None:
    load_parties(database, EXAMPLES / "parties.csv")
    before = read_overview(database)
    perform(database, "full.json", run="first")
    after = read_overview(database)
    changed = [change.row for change in changed_rows(before, after)]
    assert [(row.sort, row.subject, row.detail) for row in changed] == [
        (RowSort.COMPANY, "Apex ManCo S.à r.l.", "LU, active"),
        (RowSort.FUND, "Apex Capital Fund", "LU, fund, active"),
        (RowSort.ROLE, "Apex Capital Fund (LU)", "DIRECTOR: John Smith (GB)"),
        (RowSort.ROLE, "Apex ManCo S.à r.l. (LU)", "DIRECTOR: John Smith (GB)"),
        (RowSort.PRODUCT, "Apex Capital Fund (LU)", "CUSTODY"),
        (RowSort.PRODUCT, "Apex Capital Fund (LU)", "FUND_ACCOUNTING"),
        (RowSort.RELATION, "Apex Capital Fund (LU)", "is managed by Apex ManCo S.à r.l. (LU)"),
    ]  # fmt: skip
    perform(database, "full.json", run="second")
    assert read_overview(database) == after


def test_mixed_example_links_what_exists(database: EntityDatabase) -> None:
    load_parties(database, EXAMPLES / "parties.csv")
    before = read_overview(database)
    perform(database, "mixed.json", run="first")
    assert [changed.row.detail for changed in changed_rows(before, read_overview(database))] == [
        "IE, fund, active",
        "COMPLIANCE_OFFICER: Sarah Chen (HK)",
        "is managed by BlackRock ManCo (IE)",
    ]


@pytest.mark.parametrize(
    ("example", "problems"),
    [
        ("ambiguous.json", [("lookup_ambiguous", ["Maria García", "María Garcia"])]),
        ("not_found.json", [("lookup_not_found", []), ("lookup_not_found", ["Sarah Chen", "Sara Chan"])]),
    ],
)
def test_lookup_that_fails_ends_the_example_before_any_change(
    database: EntityDatabase, example: str, problems: list[tuple[str, list[str]]]
) -> None:
    load_parties(database, EXAMPLES / "parties.csv")
    before = read_overview(database)
    told = perform(database, example, run="first")
    assert [(each["code"], [found["name"] for found in each["candidates"]]) for each in told] == problems
    assert read_overview(database) == before
