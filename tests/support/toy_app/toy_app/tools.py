"""The tools of the warehouse, and the resolver of shelves. `toy.put` is also a verb of the profile `intents`."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import WithJsonSchema

from dagwright.plugins.entities import Resolver
from dagwright.settings import Settings
from dagwright.tools import AskPerson, ToolSpec, context, spec_of, tool
from toy_app.settings import ToySettings

SHELVES: Mapping[str, Mapping[str, str]] = {
    "s1": {"id": "s1", "name": "Long shelf", "kind": "shelf", "aisle": "A"},
    "s2": {"id": "s2", "name": "Long shelf", "kind": "shelf", "aisle": "B"},
    "s3": {"id": "s3", "name": "Short shelf", "kind": "shelf", "aisle": "B"},
}
RESOLVER = Resolver(
    find="toy.find_shelf",
    bind="toy.bind_shelves",
    types={"place": None, "shelf": "shelf", "rack": "shelf"},
    filters={"aisle": "aisle"},
)
ShelfId = Annotated[str, WithJsonSchema({"type": "string", "x-dagwright-entity": ["shelf"]})]


def aisle(text: str) -> str:
    """Return an aisle in capitals. Raises ValueError for any text but one letter."""
    if len(text) != 1 or not text.isalpha():
        raise ValueError(f"{text!r} is not an aisle; expected one letter")
    return text.upper()


@tool(name="toy.put", effects="idempotent", undo="toy.take", returns="shelf")
def put(*, shelf_id: ShelfId, item: str) -> dict[str, str]:
    """Put an item on a shelf.

    Args:
        shelf_id: id of the shelf.
        item: name of the item.
    """
    warehouse = context().environment.settings_of(ToySettings).toy_warehouse
    return {"id": shelf_id, "text": f"{item} is on {shelf_id} in {warehouse}"}


@tool(name="toy.take", effects="idempotent")
def take(*, key: str, arguments: dict[str, Any], result: Any = None) -> str:
    """Take an item from its shelf."""
    return "taken"


@tool(name=RESOLVER.find, effects="read", resolver=RESOLVER)
def find_shelf(*, search_text: str, entity_type: str, aisle: str | None = None) -> dict[str, Any]:
    """Find a shelf by its name. If several shelves have the name, a person chooses one."""
    hits = [shelf for shelf in SHELVES.values() if shelf["name"] == search_text and aisle in (None, shelf["aisle"])]
    if len(hits) == 1:
        return {"entity": dict(hits[0]), "reason": "only one"}
    if answers := context().answers:
        [shelf_id] = answers[-1]["selected"]
        return {"entity": dict(SHELVES[shelf_id]), "reason": "chosen"}
    raise AskPerson({"type": "SELECTION", "prompt": "Which shelf?", "options": [shelf["id"] for shelf in hits]})


@tool(name=RESOLVER.bind, effects="idempotent")
def bind_shelves(*, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Bind the shelves that were found."""
    return [{**shelf, "created": False} for shelf in found]


def tools(settings: Settings) -> Sequence[ToolSpec]:
    """Return all tools of the application."""
    return [spec for function in (put, take, find_shelf, bind_shelves) if (spec := spec_of(function)) is not None]
