"""How many nodes of a run have ended, from the document that it wrote."""

from typing import Any

import pytest

from dagwright.contracts.documents import nodes_ended

_STATES = {"a": "completed", "a[x]": "completed", "a[y]": "failed", "b": "skipped", "c": "failed"}


@pytest.mark.parametrize(
    ("document", "total", "ended"),
    [
        ({"nodes": {name: {"status": status} for name, status in _STATES.items()}}, 3, 2),
        ({"nodes": {"a": {"status": "completed"}, "b[1]": {"status": "completed"}}}, 2, 2),
        ({"nodes": {}, "nodes_ref": {"ref": "history", "counts": {"completed": 7, "blocked": 2}}}, 9, 7),
        ({"nodes": {"a": {"status": "completed"}, "undo a": {"status": "completed", "undoes": "a"}}}, 1, 1),
        # With the items of a node among the counts, or with nodes that came later, the document does not tell.
        ({"nodes": {}, "nodes_ref": {"ref": "history", "counts": {"completed": 7, "blocked": 2}}}, 4, None),
        ({"nodes": {}}, 3, None),
    ],
)
def test_count_of_nodes_is_told_without_items_or_not_at_all(
    document: dict[str, Any], total: int, ended: int | None
) -> None:
    assert nodes_ended(document, total=total) == ended
