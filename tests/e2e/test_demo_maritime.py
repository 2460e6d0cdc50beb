"""`make demo-maritime` compares two carriers, on a real search server that stops with the demo."""

from datetime import UTC, date, datetime, timedelta

import pytest

from dagwright.settings import Settings
from dagwright_maritime.search.server import LocalSearch
from dagwright_maritime.shipments import DataSet
from tests.e2e.command import CommandLine, demo_program_of, wait_for_exit

pytestmark = [pytest.mark.server, pytest.mark.search, pytest.mark.fresh]

CARRIERS = ("MAERSK", "EVERGREEN")


def last_quarter(today: date) -> tuple[date, date]:
    """Return the first and the last day of the quarter that has ended most recently."""
    quarter_start = date(today.year, today.month - (today.month - 1) % 3, 1)
    last_day = quarter_start - timedelta(days=1)
    return date(last_day.year, last_day.month - 2, 1), last_day


def volumes(data: DataSet) -> dict[str, tuple[int, int]]:
    """Compute the expected figures without the search server: carrier -> TEU and number of shipments."""
    first_day, last_day = (day.isoformat() for day in last_quarter(data.today))
    volume_by_carrier = dict.fromkeys(CARRIERS, (0, 0))
    for shipment in data.shipments():
        if shipment["destination_port_code"] == "USLAX" and first_day <= shipment["departure_date"] <= last_day:
            teu, shipment_count = volume_by_carrier.get(shipment["carrier_name"], (0, 0))
            if shipment["carrier_name"] in volume_by_carrier:
                volume_by_carrier[shipment["carrier_name"]] = (teu + shipment["teu"], shipment_count + 1)
    return volume_by_carrier


async def test_demo_prints_the_volumes_of_both_carriers(commands_with_private_server: CommandLine) -> None:
    program = await demo_program_of("demo-maritime")
    today = datetime.now(UTC).date()
    result = await wait_for_exit(await commands_with_private_server.start(program=program))
    assert (result.code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0] == "no OPENAI_API_KEY is set, so a script plays the model"
    # The demo loads its shipments into separate indices, not into the user's indices.
    load_message = "loaded 10,000 shipments in demo-maritime-* on the search server at http://127.0.0.1:"
    assert any(line.startswith(load_message) for line in lines)
    worker_tools = [line.split()[1] for line in lines if line.startswith("  sg")]
    query_tools = ["metadata_lookup:", "es_query_gen:", "es_query_exec:"]
    assert worker_tools == [*(tool for tool in query_tools for _ in CARRIERS), "analyze_results:"]
    # Around midnight, the demo and this test may have different dates.
    expected_volumes = [volumes(DataSet(day)) for day in {today, datetime.now(UTC).date()}]
    rows = [{cell.strip() for cell in line.strip("| ").split("|")} for line in lines if line.startswith("| ")]
    assert any(
        all(any({name, f"{figures[name][0]:,}", f"{figures[name][1]:,}"} <= row for row in rows) for name in CARRIERS)
        for figures in expected_volumes
    ), result.stdout
    # The commands that the output shows succeed.
    run_id = next(line.split()[1] for line in lines if line.startswith("run demo-maritime-"))
    command_lines = [line for line in lines if ".venv/bin/dagwright " in line and run_id in line]
    graph_arguments, node_arguments = (line.split("dagwright ")[1].split() for line in command_lines)
    results = [
        await commands_with_private_server(*graph_arguments),
        await commands_with_private_server(*node_arguments),
    ]
    assert [(each.code, each.stderr) for each in results] == [(0, ""), (0, "")]
    assert "metadata_lookup" in results[0].stdout
    assert "analysis_result" in results[1].stdout
    assert LocalSearch.from_settings(Settings(state_dir=commands_with_private_server.folder / "state")).find() is None
