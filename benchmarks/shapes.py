"""The graphs that are measured, as plans for Dagwright; `by_hand.py` has the same graphs as workflows.

Each function returns a plan document. Values travel along the edges in both, so that both move the same data.
"""

from collections.abc import Sequence
from typing import Any

FAN_WIDTH = 200
CHAIN_LENGTH = 50
LAYERS = 10
LAYER_WIDTH = 20
CHAINS = 20
CHAIN_STEPS = 5
STEP_S = 0.05
STRAGGLER_S = 0.3

Plan = dict[str, Any]


def fan_out() -> Plan:
    """Returns one node, 200 that need it, and one that needs them all."""
    leaves = [_call(f"leaf{index}", "{{root.result}}") for index in range(FAN_WIDTH)]
    return {"nodes": [_call("root", 1), *leaves, _call("join", FAN_WIDTH, needs=[leaf["id"] for leaf in leaves])]}


def chain() -> Plan:
    """Returns 50 nodes, each of which needs the one before."""
    later = [_call(f"step{index}", f"{{{{step{index - 1}.result}}}}") for index in range(1, CHAIN_LENGTH)]
    return {"nodes": [_call("step0", 1), *later]}


def layers() -> Plan:
    """Returns 10 layers of 20 nodes; each node needs the whole layer before."""
    nodes = [_call(f"n0-{index}", index) for index in range(LAYER_WIDTH)]
    for layer in range(1, LAYERS):
        before = [f"n{layer - 1}-{index}" for index in range(LAYER_WIDTH)]
        nodes += [
            _call(f"n{layer}-{index}", f"{{{{{before[index]}.result}}}}", needs=before) for index in range(LAYER_WIDTH)
        ]
    return {"nodes": nodes}


def is_straggler(chain_number: int, step: int) -> bool:
    """Tells whether a step is the slow one of its layer; no chain has two of them."""
    return chain_number == 4 * step


def stragglers() -> Plan:
    """Returns 20 chains of 5 between a start and an end; in each layer one step takes 300 ms, all else 50 ms."""
    nodes = [_pause("start", STEP_S, value=1)]
    for number in range(CHAINS):
        for step in range(CHAIN_STEPS):
            before = f"c{number}-{step - 1}" if step else "start"
            seconds = STRAGGLER_S if is_straggler(number, step) else STEP_S
            nodes.append(_pause(f"c{number}-{step}", seconds, value=f"{{{{{before}.result}}}}"))
    nodes.append(_pause("end", STEP_S, value=1, needs=[f"c{number}-{CHAIN_STEPS - 1}" for number in range(CHAINS)]))
    return {"nodes": nodes}


STRAGGLERS_CRITICAL_PATH_S = 2 * STEP_S + (CHAIN_STEPS - 1) * STEP_S + STRAGGLER_S
"""Start, a chain with its straggler, end: what no engine can undercut."""

STRAGGLERS_BARRIER_S = 2 * STEP_S + CHAIN_STEPS * STRAGGLER_S
"""What an engine takes that waits for each layer as a whole."""


def large(count: int) -> Plan:
    """Returns a plan of so many nodes; each uses the result of an earlier one and waits for two more."""
    nodes = [_call(f"node{index}", index) for index in range(3)]
    for index in range(3, count):
        nodes.append(
            {
                "id": f"node{index}",
                "tool": "no_op",
                "title": f"Step {index} of {count}",
                "arguments": {"value": f"{{{{node{index // 2}.result}}}}"},
                "depends_on": [f"node{index - 1}", f"node{index // 3}"],
            }
        )
    return {"plan": 1, "title": "A large plan", "nodes": nodes}


def _call(node_id: str, value: int | str, *, needs: Sequence[str] = ()) -> Plan:
    return {"id": node_id, "tool": "no_op", "arguments": {"value": value}, "depends_on": list(needs)}


def _pause(node_id: str, seconds: float, *, value: int | str, needs: Sequence[str] = ()) -> Plan:
    arguments = {"seconds": seconds, "value": value}
    return {"id": node_id, "tool": "pause", "arguments": arguments, "depends_on": list(needs)}
