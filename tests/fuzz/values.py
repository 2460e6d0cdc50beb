"""Strategies for the small parts of a case: IDs, texts, JSON of any shape, boundary numbers."""

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

GOOD_IDS = (
    *("a", "b", "c", "n1", "fetch_mail", "x.y", "a b", "a/b", "[0]", "a[0]", "m[x]", "é", "e\u0301", "計算", "👩‍🚀"),
    *("a.result", 'q"u', "it's", "b\\s", "#2", "a#2", "~", "1", "-1", "None", "x" * 200, "計" * 66, "l\nb", "nul\x00"),
    *("\u202eabc", "A", "a.b.status", "cancel", "RunPlan", "compile_plan", "region:a", "a|b", "*", "%2F", "...", "$"),
)
BAD_IDS = ("item", "index", "inputs", "secret", "", " ", "x" * 201, "\ud800", "{{a", "}}", 5, None, ["a"], {"id": "a"})
PATHS = (
    *("", "", "", ".x", ".items", "[0]", "[-1]", '["a b"]', ".deep.y[0].z", ".found"),
    *("[*].x", "..x", "[?@.x>1].name"),
)
BOUNDARY_NUMBERS = (0, 1, -1, 2, 5, 0.5, 1e-9, 2**31, 2**53 + 1, 10**30, -(10**30), 1e308, True, "1", None, "")
DURATIONS = ("1ms", "50ms", "100ms", "1s", "1.5s", "10s", "1m", "1h", "7d")
ODD_DURATIONS = ("0s", "-1s", "soon", "1", 5, "99999d", "")
_TEXTS = ("{{a.result}}", "{{", "}}", "\\{{x", "{{item}}", "{{index}}", "{{secret.NAME}}", "{{PLACEHOLDER_x}}")

ids = st.sampled_from(GOOD_IDS) | st.text(min_size=1, max_size=6)
plain_leaves = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from(BOUNDARY_NUMBERS)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
)
json_leaves = plain_leaves | st.sampled_from(_TEXTS)
json_values = st.recursive(
    json_leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6) | ids, inner, max_size=4),
    max_leaves=12,
)
odd_leaves = json_leaves | st.sampled_from((float("nan"), float("inf"), "\ud800", "x" * 5_000, 10**400, [[[[[[]]]]]]))
odd_values = json_values | odd_leaves | st.lists(odd_leaves, max_size=3) | st.dictionaries(ids, odd_leaves, max_size=3)
"""JSON, and values that only resemble JSON, such as NaN."""


@st.composite
def usual_or_rare(
    draw: st.DrawFn, usual: st.SearchStrategy[Any], *, rare: st.SearchStrategy[Any], one_in: int = 20
) -> Any:
    """Draw from `usual`, and once in `one_in` times from `rare`."""
    return draw(rare if draw(st.integers(1, one_in)) == one_in else usual)


def happens_once_in(draw: st.DrawFn, n: int) -> bool:
    """Return true once in `n` times."""
    return draw(st.integers(1, n)) == n


@st.composite
def references(draw: st.DrawFn, node_ids: Sequence[str]) -> str:
    """Return a reference to one of the nodes, or a text that refers to no node if there are no nodes."""
    if not node_ids:
        return draw(st.sampled_from(("plain", "", "{{PLACEHOLDER_name}}", "\\{{a}}")))
    name = draw(st.sampled_from(node_ids))
    field = draw(st.sampled_from(("result", "result", "result", "status", "error")))
    path = draw(st.sampled_from(PATHS)) if field != "status" else ""
    return f"{{{{{name}.{field}{path}}}}}"


@st.composite
def texts(draw: st.DrawFn, node_ids: Sequence[str]) -> str:
    """Return a text with references in it."""
    return "".join(draw(st.lists(references(node_ids) | st.text(max_size=4), max_size=3)))


def arguments(node_ids: Sequence[str]) -> st.SearchStrategy[Any]:
    """Return objects that contain references to these nodes."""
    leaves = (
        references(node_ids) | references(node_ids) | texts(node_ids) | usual_or_rare(plain_leaves, rare=json_leaves)
    )
    values = st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
        max_leaves=5,
    )
    return st.dictionaries(st.sampled_from(("x", "text", "a b", "items", "é")), values, max_size=3)
