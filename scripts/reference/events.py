"""The table of the events of a run, from `RUN_EVENTS`."""

from dagwright.interfaces.http.event_models import RUN_EVENTS
from scripts.reference.markdown import code, table


def run_events_table() -> str:
    """Return a row for each class of events of a run: their types, and the class with a link to its fields."""
    types_by_class: dict[str, list[str]] = {}
    for event_type, event_class in RUN_EVENTS.items():
        types_by_class.setdefault(event_class.__name__, []).append(code(event_type))
    rows = [(", ".join(types), f"[{name}](http-api.md#{name.lower()})") for name, types in types_by_class.items()]
    return table(("Event", "Fields"), rows)
