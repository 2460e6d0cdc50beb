"""Run onboarding plans on the real server, with the real verbs and a separate database."""

import json
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHistory

from dagwright.settings import Settings
from dagwright.tools import ToolRegistry, context
from dagwright_onboarding.database import EntityDatabase
from dagwright_onboarding.overview import Overview, changed_rows, read_overview
from dagwright_onboarding.party_loading import load_parties
from tests.support.runs import Runs, events_of, scheduled_calls, serving_runs

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "onboarding"
_SEEDS = ROOT / "tests" / "conformance" / "seeds"

PARTIES = """\
name,kind,jurisdiction,aliases,date_of_birth
John Smith,person,GB,John,1968-03-14
Maria García,person,ES,,1972-06-21
María Garcia,person,LU,,1983-02-11
Sarah Chen,person,HK,,1987-05-17
BlackRock ManCo,company,IE,,
Apex Fund,fund,KY,,
"""
"""Parties that the plans look up. Each lookup has one hit. The names of two persons differ only in accents."""

MANCO = "Apex ManCo S.à r.l. (LU)"
FUND = "Apex Capital Fund (LU)"
FULL_ONBOARDING_ROWS = {
    "@result_1": ["Apex ManCo S.à r.l.: LU, active"],
    "@result_2": ["Apex Capital Fund: LU, fund, active", f"{FUND}: is managed by {MANCO}"],
    "@result_3": [f"{MANCO}: DIRECTOR: John Smith (GB)"],
    "@result_4": [f"{FUND}: DIRECTOR: John Smith (GB)"],
    "@result_5": [f"{FUND}: CUSTODY"],
    "@result_6": [f"{FUND}: FUND_ACCOUNTING"],
}
"""Rows that each intent of the full onboarding adds to the database."""


def seed(name: str) -> Any:
    """Return a seed plan of `tests/conformance`."""
    return json.loads((_SEEDS / f"intents-{name}.json").read_text(encoding="utf-8"))["document"]


def example(name: str) -> Any:
    """Return a plan of `examples/onboarding`."""
    return json.loads((EXAMPLES / name).read_text(encoding="utf-8"))


def intent(verb: str, *, refs: dict[str, str] | None = None, lookups: Any = None, **params: str) -> dict[str, Any]:
    """Return an intent; `_` in the names of params becomes `-`."""
    params_by_name = {name.replace("_", "-"): value for name, value in params.items()}
    return {"verb": verb, "params": params_by_name, "refs": refs or {}, "lookups": lookups}


def entity_lookup(text: str, entity_type: str = "person") -> dict[str, str]:
    return {"search_text": text, "entity_type": entity_type}


def rows_since(initial_overview: Overview, database: EntityDatabase) -> list[str]:
    """Return the rows that were added to a database: `subject: detail`, sorted. Nothing else may change."""
    changes = changed_rows(initial_overview, read_overview(database))
    assert {change.change.value for change in changes} <= {"added"}
    return sorted(f"{change.row.subject}: {change.row.detail}" for change in changes)


@dataclass(slots=True)
class Onboarding:
    """Runs of onboarding plans, their database, and the initial overview of the database."""

    runs: Runs
    database: EntityDatabase
    initial_overview: Overview = field(init=False)

    def __post_init__(self) -> None:
        self.initial_overview = read_overview(self.database)

    def added_rows(self) -> list[str]:
        """Return the new rows of the database: `subject: detail`, sorted."""
        return rows_since(self.initial_overview, self.database)


@asynccontextmanager
async def onboarding(
    client: Client, folder: Path, *, parties: str = PARTIES, has_workflow_cache: bool = True
) -> AsyncIterator[Onboarding]:
    """Serve onboarding plans on a database with `parties` (CSV). Replay all runs at the end of the block."""
    settings = Settings(state_dir=folder)
    database = EntityDatabase(settings.database_url)
    parties_file = folder / "parties.csv"
    parties_file.write_text(parties, encoding="utf-8")
    report = load_parties(database, parties_file)
    assert not report.rejected, report.rejected
    try:
        async with serving_runs(
            client, ToolRegistry.of(), settings=settings, has_workflow_cache=has_workflow_cache
        ) as runs:
            yield Onboarding(runs, database)
            await runs.check_runs()
    finally:
        database.dispose()


def calls_by_workflow_task(history: WorkflowHistory) -> list[list[str]]:
    """Return the ids of the calls of a run in order, grouped by the workflow task that scheduled them."""
    ids_by_task_event: defaultdict[int, list[str]] = defaultdict(list)
    for event in events_of(history, EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED):
        attributes = event.activity_task_scheduled_event_attributes
        ids_by_task_event[attributes.workflow_task_completed_event_id].append(attributes.activity_id)
    return list(ids_by_task_event.values())


def activity_types_of(history: WorkflowHistory) -> list[str]:
    return [scheduled_call.activity_type.name for scheduled_call in scheduled_calls(history)]


class WriteGates:
    """Hold calls of verbs in this process right before the transaction. Each gate has the ID of the calling node."""

    def __init__(self) -> None:
        self.reached_nodes: list[str] = []
        self._gates: dict[str, threading.Event] = {}
        self._write = EntityDatabase.write

    def hold(self, node_id: str) -> None:
        self._gates[node_id] = threading.Event()

    def release(self, node_id: str) -> None:
        self._gates.pop(node_id).set()

    def write(self, database: EntityDatabase, work: Callable[[Any], Any]) -> Any:
        """Replacement of `EntityDatabase.write`."""
        node_id = context().node_id
        if (gate := self._gates.get(node_id)) is not None:
            self.reached_nodes.append(node_id)
            gate.wait()
        return self._write(database, work)
