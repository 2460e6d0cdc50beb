"""The plan whose calls append their idempotency keys to a ledger, and the check of the ledger after its runs."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dagwright.protocol.idempotency import idempotency_key

LAYERS, WIDTH = 5, 4
NODES = LAYERS * WIDTH
_WRITE, _IDEMPOTENT = "write_key", "apply_key"

Document = Mapping[str, Any]


def effects_plan(ledger: str) -> dict[str, Any]:
    """Return layers of nodes with effects; half are `write`, and a failed `write` does not stop its dependents."""
    nodes = []
    for layer in range(LAYERS):
        previous_results = [f"{{{{n{layer - 1}-{index}.result}}}}" for index in range(WIDTH)] if layer else []
        for index in range(WIDTH):
            call = {
                "id": f"n{layer}-{index}",
                "arguments": {"ledger": ledger, "previous_results": previous_results},
                "heartbeat": "2s",
            }
            if index % 2:
                nodes.append({**call, "tool": _WRITE, "on_error": {"value": 0}})
            else:
                nodes.append({**call, "tool": _IDEMPOTENT, "retry": {"max_attempts": 10, "first_delay": "100ms"}})
    return {"nodes": nodes}


@dataclass(frozen=True, slots=True)
class Tally:
    """Effects of the nodes of some runs, compared with the ledger.

    Args:
        nodes: nodes of all runs.
        once: nodes whose key is in the ledger once.
        repeated_writes: keys of `write` nodes that are in the ledger more than once.
        missing: completed nodes without an entry.
        unplanned: keys in the ledger that belong to no node.
        unknown: `write` nodes that failed with `outcome_unknown`: the change may have been made.
        repeated_idempotent: keys of `idempotent` nodes that are in the ledger more than once, which is permitted.
        lost_runs: runs that are not completed.
    """

    nodes: int
    once: int
    repeated_writes: int
    missing: int
    unplanned: int
    unknown: int
    repeated_idempotent: int
    lost_runs: int

    @property
    def is_correct(self) -> bool:
        """Return whether no effect was duplicated or lost, and each run completed."""
        return not (self.repeated_writes or self.missing or self.unplanned or self.lost_runs)

    def to_json(self) -> dict[str, Any]:
        """Return the tally as JSON."""
        return asdict(self)


def compare_with_ledger(documents: Mapping[str, Document], keys: Sequence[str]) -> Tally:
    """Compare the result documents of runs with the ledger.

    Args:
        documents: ID of the first execution of a run -> result document.
        keys: the keys in the ledger.
    """
    counts = Counter(keys)
    nodes = {
        idempotency_key(run_id, [["node", node_id]]): node
        for run_id, document in documents.items()
        for node_id, node in document["nodes"].items()
    }
    failure_codes = {key: node["error"]["code"] for key, node in nodes.items() if node["error"] is not None}
    repeated_by_tool = Counter(nodes[key]["tool"] for key, count in counts.items() if key in nodes and count > 1)
    return Tally(
        nodes=len(nodes),
        once=sum(counts[key] == 1 for key in nodes),
        repeated_writes=repeated_by_tool[_WRITE],
        missing=sum(not counts[key] and key not in failure_codes for key in nodes),
        unplanned=sum(key not in nodes for key in counts),
        unknown=sum(code == "outcome_unknown" for code in failure_codes.values()),
        repeated_idempotent=repeated_by_tool[_IDEMPOTENT],
        lost_runs=sum(document["status"] != "completed" for document in documents.values()),
    )
