"""Strategies for plans: native plans, plans of other dialects, and plans with parts replaced by odd values."""

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from tests.conformance.kit import DIALECTS
from tests.fuzz.tools import EFFECTS, FAILURES, RESULTS
from tests.fuzz.values import (
    BAD_IDS,
    BOUNDARY_NUMBERS,
    DURATIONS,
    ODD_DURATIONS,
    arguments,
    happens_once_in,
    ids,
    json_values,
    odd_values,
    references,
    texts,
    usual_or_rare,
)
from tests.support.json_paths import paths_of, replace_at

_MAX_DEPTH = 2
_RETURNING_TOOLS = ("give", "give_async")
_FAILING_TOOLS = ("fail", "fail_async", "flaky")
_CONDITIONS = (
    *("true", "false", "1 == 1", "null == null", "1 / 0 == 1", "[1, 2].exists(x, x > 1)", "size('é') == 1"),
    *("inputs.name == 'x'", "item == 1", "item.x > 0", "unknown.result == 1", "(", "", "'a'.matches('(a+)+$')", "1 +"),
)
_NODE_CONDITIONS = (
    *("{id}.result == 1", "size({id}.result) > 0", "{id}.status == 'completed'", "{id}.error.code == 'tool_failed'"),
    *("{id}.result.x > 0", "{id}.result.deep.y[0].z == null", "{id}.result in [1, 2]", "!{id}.partial", "{id}.result"),
    *("{id}.result.items.all(x, x > 0)", "string({id}.result) != ''", "{id}.result + 1 > 0", "has({id}.result.x)"),
)

_metadata = usual_or_rare(st.dictionaries(st.text(max_size=4), json_values, max_size=2), rare=json_values)
_durations = usual_or_rare(st.sampled_from(DURATIONS), rare=st.sampled_from(ODD_DURATIONS))


@st.composite
def native_plans(draw: st.DrawFn, *, depth: int = 0) -> dict[str, Any]:
    """Return a plan in Dagwright's own dialect. About two of three plans are valid."""
    node_count = draw(st.integers(1, 8 if depth == 0 else 3))
    node_ids = draw(st.lists(ids, min_size=node_count, max_size=node_count, unique=True))
    nodes = [draw(_nodes(node_id, node_ids[:number], depth=depth)) for number, node_id in enumerate(node_ids)]
    if happens_once_in(draw, 4):
        nodes = list(draw(st.permutations(nodes)))
    if happens_once_in(draw, 40):
        nodes.append(nodes[0])
    plan: dict[str, Any] = {"plan": 1, "nodes": nodes}
    if happens_once_in(draw, 3):
        plan["title"] = draw(st.text(max_size=20) | st.sampled_from(("| **x** |\n", "t" * 3_000, "\x00")))
    if happens_once_in(draw, 3):
        plan["output"] = draw(texts(node_ids) | arguments(node_ids) | st.lists(references(node_ids), max_size=3))
    if happens_once_in(draw, 4):
        plan["inputs"] = {"name": draw(usual_or_rare(st.just({"type": "string", "default": "x"}), rare=json_values))}
    if happens_once_in(draw, 6):
        plan["on_failure"] = draw(usual_or_rare(st.sampled_from(("continue", "fail_fast")), rare=json_values))
    if happens_once_in(draw, 6):
        plan["deadline"] = draw(_durations)
    if happens_once_in(draw, 8):
        plan["metadata"] = draw(_metadata)
    return plan


@st.composite
def _nodes(draw: st.DrawFn, node_id: str, earlier_ids: Sequence[str], *, depth: int) -> dict[str, Any]:
    node: dict[str, Any] = {"id": draw(usual_or_rare(st.just(node_id), rare=st.sampled_from(BAD_IDS), one_in=60))}
    node |= draw(_kind_fields(earlier_ids, depth=depth))
    is_sub_plan = "plan" in node
    omitted_fields = ["retry", "heartbeat"] if is_sub_plan else []
    # A cache is invalid for tools with other effects than `pure` and `read`, and most plans should be valid.
    omitted_fields += (
        [] if str(node.get("tool")).startswith(("pure.", "read.")) or happens_once_in(draw, 20) else ["cache"]
    )
    for field, (n, values) in _fields(earlier_ids).items():
        if happens_once_in(draw, n) and field not in omitted_fields:
            node[field] = draw(usual_or_rare(values, rare=odd_values, one_in=30))
    if happens_once_in(draw, 6):
        node["for_each"] = draw(_items(earlier_ids))
        if happens_once_in(draw, 2):
            node["key"] = draw(st.sampled_from(("{{item}}", "{{index}}", "k{{item.x}}", "same", "{{item.name}}")))
        if happens_once_in(draw, 3):
            node["max_parallel"] = draw(usual_or_rare(st.integers(1, 3), rare=st.sampled_from(BOUNDARY_NUMBERS)))
        node.setdefault("arguments", {})
        if isinstance(node["arguments"], dict):
            node["arguments"] = {**node["arguments"], "text": "{{item}} {{index}}"}
    dependency_count = len(node["depends_on"]) if isinstance(node.get("depends_on"), list) else 0
    if (
        isinstance(node.get("join"), dict)
        and not 0 < node["join"].get("at_least", 0) <= dependency_count
        and not happens_once_in(draw, 10)
    ):
        node["join"] = "any"
    # The default delay before a retry is too long: several seconds.
    node.setdefault("retry", {"first_delay": "10ms", "max_attempts": 2}) if not is_sub_plan else None
    return node


def _fields(earlier_ids: Sequence[str]) -> dict[str, tuple[int, st.SearchStrategy[Any]]]:
    """Return field -> (n, values); one node in n has the field."""
    conditions = st.sampled_from(_CONDITIONS)
    if earlier_ids:
        pairs = st.tuples(st.sampled_from(_NODE_CONDITIONS), st.sampled_from(earlier_ids))
        conditions |= pairs.map(lambda pair: pair[0].replace("{id}", _condition_name(pair[1])))
        depends_on: st.SearchStrategy[Any] = st.lists(st.sampled_from(earlier_ids), max_size=3, unique=True)
    else:
        depends_on = st.just([])
    joins = st.sampled_from(("all", "any", "all_done", {"at_least": 1}, {"at_least": 2}))
    on_errors = st.sampled_from(("block", "skip", {"value": 0}, {"value": None}, {"value": {"x": 1}}))
    retries = st.fixed_dictionaries(
        {"first_delay": st.sampled_from(("1ms", "10ms"))},
        optional={
            "max_attempts": usual_or_rare(st.integers(1, 3), rare=st.sampled_from(BOUNDARY_NUMBERS)),
            "factor": usual_or_rare(st.sampled_from((1, 1.0, 2, 999)), rare=st.sampled_from(BOUNDARY_NUMBERS)),
            "max_delay": st.sampled_from(("1ms", "20ms", "1h")),
        },
    )
    return {
        "title": (4, st.text(max_size=20) | st.sampled_from(("t" * 2_000, "a\nb|c", "\x00"))),
        "when": (5, conditions),
        "depends_on": (3, depends_on),
        "join": (6, usual_or_rare(joins, rare=st.sampled_from(({"at_least": 99}, "none")))),
        "on_error": (4, usual_or_rare(on_errors, rare=st.sampled_from(("ask", "replan")))),
        "retry": (3, retries),
        "timeout": (6, _durations),
        "heartbeat": (10, _durations),
        "priority": (5, usual_or_rare(st.integers(1, 5), rare=st.sampled_from(BOUNDARY_NUMBERS))),
        "cache": (10, usual_or_rare(st.sampled_from(("off", {"ttl": "1h"})), rare=st.just("on"))),
        "approval": (25, usual_or_rare(st.sampled_from(("policy", "never")), rare=st.just("required"))),
        "metadata": (12, _metadata),
    }


def _condition_name(name: str) -> str:
    return name if name.isidentifier() else 'nodes["' + name.replace("\\", "\\\\").replace('"', '\\"') + '"]'


@st.composite
def _kind_fields(draw: st.DrawFn, earlier_ids: Sequence[str], *, depth: int) -> dict[str, Any]:
    """Return the field that selects the kind of a node, and the arguments of the node."""
    drawn_number = draw(st.integers(1, 24))
    effects = draw(st.sampled_from(EFFECTS))
    if drawn_number <= 9:
        return {"tool": f"{effects}.echo", "arguments": draw(arguments(earlier_ids))}
    if drawn_number <= 13:
        tool_arguments = {"kind": draw(st.sampled_from(sorted(RESULTS))), **draw(arguments(earlier_ids))}
        return {"tool": f"{effects}.{draw(st.sampled_from(_RETURNING_TOOLS))}", "arguments": tool_arguments}
    if drawn_number <= 16:
        tool_arguments = {"kind": draw(st.sampled_from(sorted(FAILURES)))}
        return {"tool": f"{effects}.{draw(st.sampled_from(_FAILING_TOOLS))}", "arguments": tool_arguments}
    if drawn_number == 17:
        name = draw(st.sampled_from(("slow", "slow_in_thread", "ignores_cancellation")))
        return {"tool": name, "arguments": {"ms": draw(st.sampled_from((0, 20, 100, 400)))}}
    if drawn_number == 18:
        return {"tool": "limited_parallel", "arguments": draw(arguments(earlier_ids))}
    if drawn_number == 19:
        return {"tool": "sends_heartbeats", "arguments": {"details": draw(json_values)}}
    if drawn_number <= 21 and depth < _MAX_DEPTH:
        sub_plan = draw(usual_or_rare(native_plans(depth=depth + 1) | dialect_plans(), rare=json_values))
        return {"plan": sub_plan, "arguments": draw(usual_or_rare(st.just({}), rare=arguments(earlier_ids)))}
    if drawn_number == 22 and happens_once_in(draw, 3):
        return draw(
            st.sampled_from(
                (
                    *({"tool": "recursive"}, {"tool": "unknown"}, {"human": {"prompt": "?"}}),
                    *({"agent": "unknown", "objective": "x"}, {"agent": "t", "objective": "{{PLACEHOLDER_name}}"}, {}),
                    *({"tool": "t", "plan": {}}, {"tool": "calculator", "arguments": {"expression": "2 ** 3 ** 9"}}),
                )
            )
        )
    return {"tool": "t", "arguments": draw(arguments(earlier_ids))}


@st.composite
def _items(draw: st.DrawFn, earlier_ids: Sequence[str]) -> Any:
    literal = st.lists(json_values | references(earlier_ids), max_size=5)
    return draw(
        usual_or_rare(literal | references(earlier_ids) | st.just([{"x": 1, "name": "p"}, {"x": 1}]), rare=odd_values)
    )


@st.composite
def dialect_plans(draw: st.DrawFn) -> Any:
    """Return a plan of one of the dialects, whose nodes depend on earlier nodes.

    Sometimes the first node depends on itself, on a later node, or on a missing node.
    """
    dialect = draw(st.sampled_from(DIALECTS))
    node_count = draw(st.integers(1, 6))
    graph = {
        number: draw(st.lists(st.integers(1, max(1, number - 1)), unique=True, max_size=2)) if number > 1 else []
        for number in range(1, node_count + 1)
    }
    if happens_once_in(draw, 15):
        graph[1] = [draw(st.integers(-1, node_count + 2))]
    return dialect.write(graph)


@st.composite
def plans(draw: st.DrawFn) -> Any:
    """Return a plan of any kind, sometimes with parts replaced by odd values."""
    plan = draw(native_plans() | native_plans() | native_plans() | dialect_plans())
    if happens_once_in(draw, 6):
        for _ in range(draw(st.integers(1, 3))):
            plan = replace_at(plan, draw(st.sampled_from(paths_of(plan))), draw(odd_values))
    return plan
