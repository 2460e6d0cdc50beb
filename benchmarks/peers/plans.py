"""The graphs as plans of Dagwright.

Each function takes the prefix of its tools: empty for ordinary tools, `short_` for `batch` tools.
"""

from typing import Any

from benchmarks.peers import graphs

Plan = dict[str, Any]
Node = dict[str, Any]


def plan_of(graph: str, *, prefix: str, ledger: str = "") -> Plan:
    """Return the plan of a graph."""
    if graph == graphs.EFFECT_CHAIN:
        return _effects(prefix, ledger)
    return {
        graphs.CHAIN: _chain,
        graphs.FAN_OUT: _fan_out,
        graphs.LAYERED: _layers,
        graphs.DOCUMENT_FAN: _documents,
    }[graph](prefix)


def _chain(prefix: str) -> Plan:
    later_steps = [
        _total(prefix, f"step{index}", [f"{{{{step{index - 1}.result}}}}", 1])
        for index in range(1, graphs.CHAIN_LENGTH)
    ]
    return {"nodes": [_total(prefix, "step0", [1]), *later_steps], "output": f"{{{{{later_steps[-1]['id']}.result}}}}"}


def _fan_out(prefix: str) -> Plan:
    leaves = [_total(prefix, f"leaf{index}", ["{{root.result}}", index]) for index in range(graphs.FAN_WIDTH)]
    join = _total(prefix, "join", [f"{{{{{leaf['id']}.result}}}}" for leaf in leaves])
    return {"nodes": [_total(prefix, "root", [1]), *leaves, join], "output": "{{join.result}}"}


def _layers(prefix: str) -> Plan:
    nodes: list[Node] = []
    previous_results: list[str] = []
    for layer in range(graphs.LAYERS):
        layer_nodes = [
            _total(prefix, f"n{layer}-{index}", [index, *previous_results]) for index in range(graphs.LAYER_WIDTH)
        ]
        previous_results = [f"{{{{{node['id']}.result}}}}" for node in layer_nodes]
        nodes += layer_nodes
    return {"nodes": [*nodes, _total(prefix, "join", previous_results)], "output": "{{join.result}}"}


def _documents(prefix: str) -> Plan:
    leaves = [
        _call(prefix, "rotate", f"leaf{index}", {"text": "{{root.result}}", "shift": index})
        for index in range(graphs.DOCUMENTS)
    ]
    texts = [f"{{{{{leaf['id']}.result}}}}" for leaf in leaves]
    join = _call(prefix, "checksum", "join", {"texts": texts})
    return {"nodes": [_call(prefix, "draft", "root", {}), *leaves, join], "output": "{{join.result}}"}


def _effects(prefix: str, ledger: str) -> Plan:
    nodes = [_call(prefix, "append", "step0", {"ledger": ledger, "number": 0})]
    for index in range(1, graphs.EFFECT_COUNT):
        arguments = {"ledger": ledger, "number": f"{{{{step{index - 1}.result}}}}"}
        nodes.append(_call(prefix, "append", f"step{index}", arguments))
    return {"nodes": nodes, "output": f"{{{{{nodes[-1]['id']}.result}}}}"}


def _total(prefix: str, node_id: str, values: list[Any]) -> Node:
    return _call(prefix, "total", node_id, {"values": values})


def _call(prefix: str, tool: str, node_id: str, arguments: dict[str, Any]) -> Node:
    return {"id": node_id, "tool": f"{prefix}{tool}", "arguments": arguments}
