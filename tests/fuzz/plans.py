"""Strategies for plans: native plans with every field, plans of the five dialects, and plans with misplaced parts."""

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
    chance,
    ids,
    json_values,
    odd_values,
    rarely,
    references,
    texts,
)
from tests.support.json_places import places_of, replace_at

_DEEPEST = 2
_RETURNING_TOOLS = ("give", "give_async")
_FAILING_TOOLS = ("fail", "fail_async", "flaky")
_CONDITIONS = (
    *("true", "false", "1 == 1", "null == null", "1 / 0 == 1", "[1, 2].exists(x, x > 1)", "size('é') == 1"),
    *("inputs.name == 'x'", "item == 1", "item.x > 0", "nobody.result == 1", "(", "", "'a'.matches('(a+)+$')", "1 +"),
)
_NODE_CONDITIONS = (
    *("{id}.result == 1", "size({id}.result) > 0", "{id}.status == 'completed'", "{id}.error.code == 'tool_failed'"),
    *("{id}.result.x > 0", "{id}.result.deep.y[0].z == null", "{id}.result in [1, 2]", "!{id}.partial", "{id}.result"),
    *("{id}.result.items.all(x, x > 0)", "string({id}.result) != ''", "{id}.result + 1 > 0", "has({id}.result.x)"),
)

_metadata = rarely(json_values, st.dictionaries(st.text(max_size=4), json_values, max_size=2))
_durations = rarely(st.sampled_from(ODD_DURATIONS), st.sampled_from(DURATIONS))


@st.composite
def native_plans(draw: st.DrawFn, *, depth: int = 0) -> dict[str, Any]:
    """Return a plan in Dagwright's own dialect; about two in three are valid."""
    size = draw(st.integers(1, 8 if depth == 0 else 3))
    names = draw(st.lists(ids, min_size=size, max_size=size, unique=True))
    nodes = [draw(_nodes(name, names[:number], depth=depth)) for number, name in enumerate(names)]
    if chance(draw, 4):
        nodes = list(draw(st.permutations(nodes)))
    if chance(draw, 40):
        nodes.append(nodes[0])
    plan: dict[str, Any] = {"plan": 1, "nodes": nodes}
    if chance(draw, 3):
        plan["title"] = draw(st.text(max_size=20) | st.sampled_from(("| **x** |\n", "t" * 3_000, "\x00")))
    if chance(draw, 3):
        plan["output"] = draw(texts(names) | arguments(names) | st.lists(references(names), max_size=3))
    if chance(draw, 4):
        plan["inputs"] = {"name": draw(rarely(json_values, st.just({"type": "string", "default": "x"})))}
    if chance(draw, 6):
        plan["on_failure"] = draw(rarely(json_values, st.sampled_from(("continue", "fail_fast"))))
    if chance(draw, 6):
        plan["deadline"] = draw(_durations)
    if chance(draw, 8):
        plan["metadata"] = draw(_metadata)
    return plan


@st.composite
def _nodes(draw: st.DrawFn, name: str, earlier: Sequence[str], *, depth: int) -> dict[str, Any]:
    node: dict[str, Any] = {"id": draw(rarely(st.sampled_from(BAD_IDS), st.just(name), one_in=60))}
    node |= draw(_kind_fields(earlier, depth=depth))
    is_sub_plan = "plan" in node
    never = ["retry", "heartbeat"] if is_sub_plan else []
    # A cache is rejected where the tool changes the world; most plans should run.
    never += [] if str(node.get("tool")).startswith(("pure.", "read.")) or chance(draw, 20) else ["cache"]
    for field, (one_in, values) in _fields(earlier).items():
        if chance(draw, one_in) and field not in never:
            node[field] = draw(rarely(odd_values, values, one_in=30))
    if chance(draw, 6):
        node["for_each"] = draw(_items(earlier))
        if chance(draw, 2):
            node["key"] = draw(st.sampled_from(("{{item}}", "{{index}}", "k{{item.x}}", "same", "{{item.name}}")))
        if chance(draw, 3):
            node["max_parallel"] = draw(rarely(st.sampled_from(BOUNDARY_NUMBERS), st.integers(1, 3)))
        node.setdefault("arguments", {})
        if isinstance(node["arguments"], dict):
            node["arguments"] = {**node["arguments"], "text": "{{item}} {{index}}"}
    most = len(node["depends_on"]) if isinstance(node.get("depends_on"), list) else 0
    if isinstance(node.get("join"), dict) and not 0 < node["join"].get("at_least", 0) <= most and not chance(draw, 10):
        node["join"] = "any"
    # The default delay before a retry is seconds long.
    node.setdefault("retry", {"first_delay": "10ms", "max_attempts": 2}) if not is_sub_plan else None
    return node


def _fields(earlier: Sequence[str]) -> dict[str, tuple[int, st.SearchStrategy[Any]]]:
    """Return field -> (n, values); the field is present once in n times."""
    conditions = st.sampled_from(_CONDITIONS)
    if earlier:
        named = st.tuples(st.sampled_from(_NODE_CONDITIONS), st.sampled_from(earlier))
        conditions |= named.map(lambda pair: pair[0].replace("{id}", _in_condition(pair[1])))
        depends_on: st.SearchStrategy[Any] = st.lists(st.sampled_from(earlier), max_size=3, unique=True)
    else:
        depends_on = st.just([])
    joins = st.sampled_from(("all", "any", "all_done", {"at_least": 1}, {"at_least": 2}))
    on_errors = st.sampled_from(("block", "skip", {"value": 0}, {"value": None}, {"value": {"x": 1}}))
    retries = st.fixed_dictionaries(
        {"first_delay": st.sampled_from(("1ms", "10ms"))},
        optional={
            "max_attempts": rarely(st.sampled_from(BOUNDARY_NUMBERS), st.integers(1, 3)),
            "factor": rarely(st.sampled_from(BOUNDARY_NUMBERS), st.sampled_from((1, 1.0, 2, 999))),
            "max_delay": st.sampled_from(("1ms", "20ms", "1h")),
        },
    )
    return {
        "title": (4, st.text(max_size=20) | st.sampled_from(("t" * 2_000, "a\nb|c", "\x00"))),
        "when": (5, conditions),
        "depends_on": (3, depends_on),
        "join": (6, rarely(st.sampled_from(({"at_least": 99}, "none")), joins)),
        "on_error": (4, rarely(st.sampled_from(("ask", "replan")), on_errors)),
        "retry": (3, retries),
        "timeout": (6, _durations),
        "heartbeat": (10, _durations),
        "priority": (5, rarely(st.sampled_from(BOUNDARY_NUMBERS), st.integers(1, 5))),
        "cache": (10, rarely(st.just("on"), st.sampled_from(("off", {"ttl": "1h"})))),
        "approval": (25, rarely(st.just("required"), st.sampled_from(("policy", "never")))),
        "metadata": (12, _metadata),
    }


def _in_condition(name: str) -> str:
    return name if name.isidentifier() else 'nodes["' + name.replace("\\", "\\\\").replace('"', '\\"') + '"]'


@st.composite
def _kind_fields(draw: st.DrawFn, earlier: Sequence[str], *, depth: int) -> dict[str, Any]:
    """Return the field that selects the kind of a node, and its arguments."""
    kind = draw(st.integers(1, 24))
    effects = draw(st.sampled_from(EFFECTS))
    if kind <= 9:
        return {"tool": f"{effects}.echo", "arguments": draw(arguments(earlier))}
    if kind <= 13:
        given = {"kind": draw(st.sampled_from(sorted(RESULTS))), **draw(arguments(earlier))}
        return {"tool": f"{effects}.{draw(st.sampled_from(_RETURNING_TOOLS))}", "arguments": given}
    if kind <= 16:
        given = {"kind": draw(st.sampled_from(sorted(FAILURES)))}
        return {"tool": f"{effects}.{draw(st.sampled_from(_FAILING_TOOLS))}", "arguments": given}
    if kind == 17:
        name = draw(st.sampled_from(("slow", "slow_in_thread", "deaf")))
        return {"tool": name, "arguments": {"ms": draw(st.sampled_from((0, 20, 100, 400)))}}
    if kind == 18:
        return {"tool": "narrow", "arguments": draw(arguments(earlier))}
    if kind == 19:
        return {"tool": "chatty", "arguments": {"details": draw(json_values)}}
    if kind <= 21 and depth < _DEEPEST:
        sub_plan = draw(rarely(json_values, native_plans(depth=depth + 1) | dialect_plans()))
        return {"plan": sub_plan, "arguments": draw(rarely(arguments(earlier), st.just({})))}
    if kind == 22 and chance(draw, 3):
        return draw(
            st.sampled_from(
                (
                    *({"tool": "recursive"}, {"tool": "nobody"}, {"human": {"prompt": "?"}}),
                    *({"agent": "nobody", "objective": "x"}, {"agent": "t", "objective": "{{PLACEHOLDER_name}}"}, {}),
                    *({"tool": "t", "plan": {}}, {"tool": "calculator", "arguments": {"expression": "2 ** 3 ** 9"}}),
                )
            )
        )
    return {"tool": "t", "arguments": draw(arguments(earlier))}


@st.composite
def _items(draw: st.DrawFn, earlier: Sequence[str]) -> Any:
    literal = st.lists(json_values | references(earlier), max_size=5)
    return draw(rarely(odd_values, literal | references(earlier) | st.just([{"x": 1, "name": "p"}, {"x": 1}])))


@st.composite
def dialect_plans(draw: st.DrawFn) -> Any:
    """Return a plan of one of the dialects, with edges to earlier nodes and sometimes to other nodes."""
    dialect = draw(st.sampled_from(DIALECTS))
    size = draw(st.integers(1, 6))
    graph = {
        number: draw(st.lists(st.integers(1, max(1, number - 1)), unique=True, max_size=2)) if number > 1 else []
        for number in range(1, size + 1)
    }
    if chance(draw, 15):
        graph[1] = [draw(st.integers(-1, size + 2))]
    return dialect.write(graph)


@st.composite
def plans(draw: st.DrawFn) -> Any:
    """Return a plan of any kind, sometimes with misplaced parts."""
    plan = draw(native_plans() | native_plans() | native_plans() | dialect_plans())
    if chance(draw, 6):
        for _ in range(draw(st.integers(1, 3))):
            plan = replace_at(plan, draw(st.sampled_from(places_of(plan))), draw(odd_values))
    return plan
