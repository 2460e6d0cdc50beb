"""The measured graphs, as plans for Dagwright; `baseline.py` has the same graphs as workflows.

Each function returns a plan document. Plans and workflows pass the same values along the same edges.
"""

from collections.abc import Sequence
from typing import Any

NO_OP = "no_op"
SHORT_NO_OP = "short_no_op"
PURE_NO_OP = "pure_no_op"
PAUSE = "pause"
NUMBERS = "numbers"

FAN_WIDTH = 200
CHAIN_LENGTH = 50
LAYERS = 10
LAYER_WIDTH = 20
WIDE_FAN_WIDTH = 1_000
WIDE_LAYER_WIDTH = 50
CHAINS = 20
CHAIN_STEPS = 5
STEP_S = 0.05
STRAGGLER_S = 0.3

Plan = dict[str, Any]
Node = dict[str, Any]


def fan_out(width: int = FAN_WIDTH, *, tool: str = NO_OP) -> Plan:
    """Return one node, its `width` dependents, and a node that depends on all of them."""
    leaves = [_call(f"leaf{index}", "{{root.result}}", tool=tool) for index in range(width)]
    join = _call("join", width, tool=tool, needs=[leaf["id"] for leaf in leaves])
    return {"nodes": [_call("root", 1, tool=tool), *leaves, join]}


def chain(length: int = CHAIN_LENGTH, *, tool: str = NO_OP) -> Plan:
    """Return `length` nodes, each of which depends on the previous one."""
    later_steps = [_call(f"step{index}", f"{{{{step{index - 1}.result}}}}", tool=tool) for index in range(1, length)]
    return {"nodes": [_call("step0", 1, tool=tool), *later_steps]}


def layers(count: int = LAYERS, width: int = LAYER_WIDTH, *, tool: str = NO_OP) -> Plan:
    """Return `count` layers of `width` nodes; each node depends on the whole previous layer."""
    nodes = [_call(f"n0-{index}", index, tool=tool) for index in range(width)]
    for layer in range(1, count):
        previous_layer = [f"n{layer - 1}-{index}" for index in range(width)]
        nodes += [
            _call(f"n{layer}-{index}", f"{{{{{previous_layer[index]}.result}}}}", tool=tool, needs=previous_layer)
            for index in range(width)
        ]
    return {"nodes": nodes}


def is_straggler(chain_number: int, step: int) -> bool:
    """Return whether a step is the slow step of its layer; no chain has two slow steps."""
    return chain_number == 4 * step


def stragglers() -> Plan:
    """Return 20 chains of 5 steps between a start and an end; one step per layer takes 300 ms, all others 50 ms."""
    nodes = [_pause("start", STEP_S, value=1)]
    for number in range(CHAINS):
        for step in range(CHAIN_STEPS):
            previous_step = f"c{number}-{step - 1}" if step else "start"
            seconds = STRAGGLER_S if is_straggler(number, step) else STEP_S
            nodes.append(_pause(f"c{number}-{step}", seconds, value=f"{{{{{previous_step}.result}}}}"))
    nodes.append(_pause("end", STEP_S, value=1, needs=[f"c{number}-{CHAIN_STEPS - 1}" for number in range(CHAINS)]))
    return {"nodes": nodes}


SLOW_CHAINS = 4
SLOW_STEPS = 60
MIXED_STEPS = 10
MIXED_PURE_NODES = 20_000


def slow_chains() -> Plan:
    """Return a few long chains of steps; each step takes 50 ms and returns 1."""
    return {"nodes": [node for number in range(SLOW_CHAINS) for node in _slow_chain(f"c{number}", SLOW_STEPS)]}


def requests_to_people(count: int) -> Plan:
    """Return `count` requests to a person, each with a node that waits for the answer, and a dependent of that node."""
    nodes: list[Node] = []
    for number in range(count):
        nodes.append({"id": f"ask{number}", "human": {"type": "CLARIFICATION", "prompt": "Continue?"}})
        nodes.append(_call(f"after{number}", number, needs=[f"ask{number}"], tool=NO_OP))
        nodes.append(_call(f"next{number}", f"{{{{after{number}.result}}}}", tool=NO_OP))
    return {"nodes": nodes}


def slow_and_pure(count: int) -> Plan:
    """Return a chain of slow steps, and next to it `count` pure nodes with three dependencies each."""
    pure_nodes = large_plan(count, tool=PURE_NO_OP)["nodes"] if count else []
    return {"nodes": [*_slow_chain("slow", MIXED_STEPS), *pure_nodes]}


def _slow_chain(name: str, length: int) -> list[Node]:
    later_steps = [
        _pause(f"{name}-{step}", STEP_S, value=f"{{{{{name}-{step - 1}.result}}}}") for step in range(1, length)
    ]
    return [_pause(f"{name}-0", STEP_S, value=1), *later_steps]


STRAGGLERS_CRITICAL_PATH_S = 2 * STEP_S + (CHAIN_STEPS - 1) * STEP_S + STRAGGLER_S
"""Duration of the start, a chain with its straggler, and the end. No engine can be faster."""


def large_plan(count: int, *, tool: str = NO_OP) -> Plan:
    """Return a plan of `count` nodes; each node uses the result of an earlier node and waits for two other nodes."""
    nodes = [_call(f"node{index}", index, tool=tool) for index in range(3)]
    for index in range(3, count):
        nodes.append(
            {
                "id": f"node{index}",
                "tool": tool,
                "title": f"Step {index} of {count}",
                "arguments": {"value": f"{{{{node{index // 2}.result}}}}"},
                "depends_on": [f"node{index - 1}", f"node{index // 3}"],
            }
        )
    return {"plan": 1, "title": "A large plan", "nodes": nodes}


def map_of_items(count: int) -> Plan:
    """Return a node that returns `count` items, and a node that runs for each of them."""
    call = {"id": "call", "for_each": "{{list.result}}", "tool": NO_OP, "arguments": {"value": "{{item}}"}}
    return {
        "nodes": [{"id": "list", "tool": NUMBERS, "arguments": {"count": count}}, call],
        "output": "{{call.status}}",
    }


def _call(node_id: str, value: int | str, *, tool: str = NO_OP, needs: Sequence[str] = ()) -> Node:
    return {"id": node_id, "tool": tool, "arguments": {"value": value}, "depends_on": list(needs)}


def _pause(node_id: str, seconds: float, *, value: int | str, needs: Sequence[str] = ()) -> Node:
    arguments = {"seconds": seconds, "value": value}
    return {"id": node_id, "tool": PAUSE, "arguments": arguments, "depends_on": list(needs)}
