"""The graphs on LangGraph with its SQLite checkpointer.

`python -m benchmarks.peers.langgraph_graphs FOLDER DURABILITY` serves requests; the durability is `sync` or `async`.
"""

import operator
import sqlite3
import sys
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph

from benchmarks.peers import graphs, serving


class ChainState(TypedDict, total=False):
    """Value that each step replaces."""

    value: int


class FanState(TypedDict, total=False):
    """Result of the root, of each leaf by its index, and of the join."""

    root: Any
    leaves: Annotated[dict[int, Any], operator.or_]
    value: int


def _chain() -> StateGraph:
    graph = StateGraph(ChainState)
    graph.add_node("step0", lambda _: {"value": graphs.total([1])})
    for index in range(1, graphs.CHAIN_LENGTH):
        graph.add_node(f"step{index}", lambda state: {"value": graphs.total([state["value"], 1])})
    return _connect_sequence(graph, [f"step{index}" for index in range(graphs.CHAIN_LENGTH)])


def _fan_out() -> StateGraph:
    graph = StateGraph(FanState)
    graph.add_node("root", lambda _: {"root": graphs.total([1])})
    for index in range(graphs.FAN_WIDTH):
        graph.add_node(f"leaf{index}", _leaf_node(index))
    graph.add_node("join", lambda state: {"value": graphs.total(_sorted_values(state["leaves"]))})
    return _connect_fan(graph, graphs.FAN_WIDTH)


def _leaf_node(index: int) -> Any:
    return lambda state: {"leaves": {index: graphs.total([state["root"], index])}}


def _documents() -> StateGraph:
    graph = StateGraph(FanState)
    graph.add_node("root", lambda _: {"root": graphs.draft()})
    for index in range(graphs.DOCUMENTS):
        graph.add_node(f"leaf{index}", _rotation_node(index))
    graph.add_node("join", lambda state: {"value": graphs.checksum(_sorted_values(state["leaves"]))})
    return _connect_fan(graph, graphs.DOCUMENTS)


def _rotation_node(index: int) -> Any:
    return lambda state: {"leaves": {index: graphs.rotate(state["root"], index)}}


def _layers() -> StateGraph:
    graph = StateGraph(FanState)
    previous_layer: list[str] = [START]
    for layer in range(graphs.LAYERS):
        names = [f"n{layer}-{index}" for index in range(graphs.LAYER_WIDTH)]
        for index, name in enumerate(names):
            graph.add_node(name, _layer_node(layer, index))
            graph.add_edge(previous_layer if len(previous_layer) > 1 else START, name)
        previous_layer = names
    graph.add_node("join", lambda state: {"value": graphs.total(_layer_values(state, graphs.LAYERS - 1))})
    graph.add_edge(previous_layer, "join")
    graph.add_edge("join", END)
    return graph


def _layer_node(layer: int, index: int) -> Any:
    number = layer * graphs.LAYER_WIDTH + index
    return lambda state: {
        "leaves": {number: graphs.total([index, *(_layer_values(state, layer - 1) if layer else [])])}
    }


def _layer_values(state: FanState, layer: int) -> list[int]:
    first_number = layer * graphs.LAYER_WIDTH
    return [state["leaves"][number] for number in range(first_number, first_number + graphs.LAYER_WIDTH)]


def _effects(ledger: str) -> StateGraph:
    graph = StateGraph(ChainState)
    for index in range(graphs.EFFECT_COUNT):
        graph.add_node(f"step{index}", lambda state: {"value": graphs.append(ledger, state.get("value", 0))})
    return _connect_sequence(graph, [f"step{index}" for index in range(graphs.EFFECT_COUNT)])


def _sorted_values(leaves: dict[int, Any]) -> list[Any]:
    return [leaves[index] for index in sorted(leaves)]


def _connect_sequence(graph: StateGraph, names: list[str]) -> StateGraph:
    for source, target in zip([START, *names], [*names, END], strict=True):
        graph.add_edge(source, target)
    return graph


def _connect_fan(graph: StateGraph, width: int) -> StateGraph:
    leaves = [f"leaf{index}" for index in range(width)]
    graph.add_edge(START, "root")
    for leaf in leaves:
        graph.add_edge("root", leaf)
    graph.add_edge(leaves, "join")
    graph.add_edge("join", END)
    return graph


def main() -> None:
    """Serve requests."""
    folder, durability = Path(sys.argv[1]), sys.argv[2]
    database = sqlite3.connect(folder / "langgraph.db", check_same_thread=False)
    database.execute("PRAGMA synchronous=NORMAL")
    saver = SqliteSaver(database)
    state_graphs = {
        graphs.CHAIN: _chain(),
        graphs.FAN_OUT: _fan_out(),
        graphs.LAYERED: _layers(),
        graphs.DOCUMENT_FAN: _documents(),
        graphs.EFFECT_CHAIN: _effects(str(folder / graphs.LEDGER)),
    }
    compiled_graphs = {name: graph.compile(checkpointer=saver) for name, graph in state_graphs.items()}

    def run(graph: str, run_id: str, is_resumed: bool) -> int:
        config = {"configurable": {"thread_id": run_id}, "recursion_limit": 1_000}
        graph_input = None if is_resumed else {"value": 0}
        return int(compiled_graphs[graph].invoke(graph_input, config, durability=durability)["value"])

    serving.serve(run)


if __name__ == "__main__":
    main()
