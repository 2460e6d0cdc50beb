"""Record the histories that `test_saved_histories` replays: `python -m tests.replay.record [NAME]…`.

Record the history of each new scenario. If the order of commands has changed, record the histories again only when no
run of the previous version can exist. Without names, all histories are recorded again. The bad histories are derived
from good histories.
"""

import asyncio
import base64
import copy
import json
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from temporalio.client import WorkflowHistory

from dagwright.core.boundary import wire
from dagwright.core.compiler.node_columns import plan_from_columns
from dagwright.core.model.compiled import plan_to_json
from dagwright.server import local
from dagwright.testing import ModelServer
from dagwright_onboarding.database import EntityDatabase
from dagwright_onboarding.party_loading import load_parties
from tests.replay.model_scenarios import MODEL_STEPS
from tests.replay.scenarios import CONTINUE_AS_NEW_AFTER_EVENTS, SCENARIOS
from tests.support.agents import model_settings
from tests.support.ledger import Ledger
from tests.support.rounds import WorkerTools
from tests.support.runs import histories_of, serving_runs
from tests.support.server import live_server
from tests.support.tools import CallHarness

HISTORIES = Path(__file__).parent / "histories"
_PARTIES = Path(__file__).parents[2] / "examples" / "onboarding" / "parties.csv"

Json = dict[str, Any]

_PROCESS_IDENTITY = re.compile(r"^[0-9]+@.+")
"""Identity of a worker process: process ID and host name. The name of a sticky queue starts with this identity."""


async def record(names: Sequence[str]) -> None:
    """Run scenarios, save their histories, and derive the bad histories."""
    await _record_on_server([name for name in names if name not in CONTINUE_AS_NEW_AFTER_EVENTS])
    for name, event_count in CONTINUE_AS_NEW_AFTER_EVENTS.items():
        if name in names:
            with patch.dict(local.DYNAMIC_CONFIG, {"limit.historyCount.suggestContinueAsNew": str(event_count)}):
                await _record_on_server([name])
    make_bad_histories()


async def _record_on_server(names: Sequence[str]) -> None:
    """Run scenarios on a new server and save their histories."""
    with tempfile.TemporaryDirectory() as folder:
        async with live_server(Path(folder) / "server") as server, ModelServer(*MODEL_STEPS) as model:
            client = await server.start()
            harness = CallHarness()
            settings = model_settings(model, Path(folder) / "worker")
            database = EntityDatabase(settings.database_url)
            load_parties(database, _PARTIES)
            database.dispose()
            worker_tools = WorkerTools(harness)
            worker_tools.remaining_failures["Maersk"] = 1
            registry = harness.registry().merge(Ledger().registry(), worker_tools.registry())
            async with serving_runs(client, registry, settings=settings) as runs:
                for name in names:
                    handle = await SCENARIOS[name](runs, harness)
                    for number, history in enumerate(await histories_of(client, handle)):
                        suffix = f"-{number}" if number else ""
                        save_history(HISTORIES / "good" / f"{name}{suffix}.json", history)


def save_history(path: Path, history: WorkflowHistory) -> None:
    _save(path, {"workflow_id": history.workflow_id, "history": _anonymize(history.to_json_dict())})


def _save(path: Path, value: Json) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _anonymize(value: Any) -> Any:
    """Remove process identities, checksums and stack traces, which a replay does not read."""
    if isinstance(value, dict):
        portable_fields = {name: part for name, part in value.items() if name not in ("stackTrace", "binaryChecksum")}
        return {name: _anonymize(part) for name, part in portable_fields.items()}
    if isinstance(value, str):
        return _PROCESS_IDENTITY.sub("recorder", value)
    return [_anonymize(part) for part in value] if isinstance(value, list) else value


# Bad histories.


def make_bad_histories() -> None:
    """Derive each bad history from the good history of its scenario."""
    for name, (scenario, change) in _CHANGES.items():
        good_history = json.loads((HISTORIES / "good" / f"{scenario}.json").read_text(encoding="utf-8"))
        bad_history = copy.deepcopy(good_history)
        change(bad_history["history"]["events"])
        assert bad_history != good_history, name
        _save(HISTORIES / "bad" / f"{name}.json", bad_history)


def _scheduled_activities(events: list[Json]) -> list[Json]:
    attributes = "activityTaskScheduledEventAttributes"
    return [event[attributes] for event in events if attributes in event]


def _rename_activity(events: list[Json]) -> None:
    _scheduled_activities(events)[1]["activityId"] = "other"


def _change_activity_type(events: list[Json]) -> None:
    _scheduled_activities(events)[1]["activityType"]["name"] = "echo"


def _swap_activities(events: list[Json]) -> None:
    first, second = _scheduled_activities(events)[1:3]
    first["activityId"], second["activityId"] = second["activityId"], first["activityId"]


def _change_content(payloads: Json, change: Callable[[Json], None]) -> None:
    """Change the JSON object in the first payload."""
    payload = payloads["payloads"][0]
    content = json.loads(base64.b64decode(payload["data"]))
    change(content)
    payload["data"] = base64.b64encode(json.dumps(content).encode()).decode()


def _plan_change(change: Callable[[Json], None]) -> Callable[[list[Json]], None]:
    """Return a function that changes the plan in the input, so that a replay makes different commands."""

    def change_input(run_input: Json) -> None:
        run_input["compiled"] = plan_to_json(plan_from_columns(run_input["compiled"]))
        change(run_input["compiled"])

    return lambda events: _change_content(events[0]["workflowExecutionStartedEventAttributes"]["input"], change_input)


def _add_root_node(plan: Json) -> None:
    plan["nodes"].append({**plan["nodes"][0], "id": "more"})


def _drop_last_node(plan: Json) -> None:
    plan["nodes"].pop()
    plan["output_bindings"] = []


def _reverse_priorities(plan: Json) -> None:
    for node in plan["nodes"]:
        node["priority"] = 6 - node.get("priority", 3)


def _drop_deadline(plan: Json) -> None:
    del plan["deadline_s"]


def _change_result(events: list[Json]) -> None:
    result = events[-1]["workflowExecutionCompletedEventAttributes"]["result"]
    _change_content(result, lambda document: document.update(output="something else"))


def _remove_early_nodes(events: list[Json]) -> None:
    """Remove the nodes from the signals that sent nodes while the model wrote the plan."""
    for event in events:
        signal = event.get("workflowExecutionSignaledEventAttributes", {})
        if signal.get("signalName") == wire.SIGNAL_PLANNED:
            _change_content(signal["input"], lambda message: message.update(nodes=[]))


_CHANGES: dict[str, tuple[str, Callable[[list[Json]], None]]] = {
    "step_renamed": ("chain", _rename_activity),
    "tool_changed": ("chain", _change_activity_type),
    "steps_swapped": ("diamond", _swap_activities),
    "step_added": ("chain", _plan_change(_add_root_node)),
    "step_dropped": ("chain", _plan_change(_drop_last_node)),
    "order_changed": ("fan_out", _plan_change(_reverse_priorities)),
    "timer_dropped": ("deadline", _plan_change(_drop_deadline)),
    "result_changed": ("chain", _change_result),
    "early_nodes_forgotten": ("streamed", _remove_early_nodes),
}
"""Name of the bad history -> the scenario of the good history, and the change of its events."""


if __name__ == "__main__":
    asyncio.run(record(sys.argv[1:] or list(SCENARIOS)))
