"""The comparison with other engines: its plans, tables and locked versions."""

import pytest

from benchmarks.peers import environments, graphs, tools
from benchmarks.peers.crashes import Crash
from benchmarks.peers.plans import plan_of
from benchmarks.peers.tables import Samples, crash_table, engine_table
from dagwright.plans.preparation import check_plan
from dagwright.tools import load_tools


@pytest.mark.parametrize("prefix", ["", tools.BATCH_PREFIX])
def test_each_graph_is_a_valid_plan_of_its_size(prefix: str) -> None:
    declarations = load_tools([tools.__file__]).declarations()
    expected = {**graphs.NODE_COUNTS, graphs.EFFECT_CHAIN: graphs.EFFECT_COUNT}
    plans = {graph: plan_of(graph, prefix=prefix, ledger="/ledger") for graph in expected}
    assert {graph: len(check_plan(plan, declarations).nodes) for graph, plan in plans.items()} == expected


def test_tables_show_medians_and_cpu_time_per_node() -> None:
    samples = Samples()
    for graph in graphs.GRAPHS:
        for seconds in (0.1, 0.5, 0.2):
            samples.add("DBOS", graph, seconds=seconds, cpu_s=graphs.NODE_COUNTS[graph] / 500)
    assert engine_table(samples).splitlines()[-1] == "| DBOS | 0.200 | 0.200 | 0.200 | 0.200 | 2.0 |"
    crashes = {"DBOS": [Crash(1.5, 0), Crash(2.5, 1), Crash(1.0, 0)]}
    assert crash_table(crashes).splitlines()[-1] == "| DBOS | 1.50 | 0 1 0 |"


def test_versions_come_from_the_lock_files() -> None:
    assert environments.locked_version("dbos", "dbos").split(".")[0].isdecimal()
    with pytest.raises(RuntimeError, match=r"dbos\.txt does not lock 'temporal'"):
        environments.locked_version("dbos", "temporal")
