"""The table of the events of a run, from `RUN_EVENTS`."""

from dagwright.interfaces.http.event_models import RUN_EVENTS
from scripts.reference.markdown import code, table


def run_events() -> str:
    """Return a row for each class of events of a run: their types, and the class with a link to its fields."""
    types: dict[str, list[str]] = {}
    for name, kind in RUN_EVENTS.items():
        types.setdefault(kind.__name__, []).append(code(name))
    rows = [(", ".join(names), f"[{kind}](http-api.md#{kind.lower()})") for kind, names in types.items()]
    return table(("Event", "Fields"), rows)
