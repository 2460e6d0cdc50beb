"""The tables of states, from the descriptions of `NodeStatus` and `RunStatus`."""

from dagwright.core.model.states import NodeStatus, RunStatus
from scripts.reference.markdown import code, fields, sentence, table

_MODULE = "dagwright/core/model/states.py"


def node_states() -> str:
    """Return a row for each state of a node: name, whether it is final, meaning."""
    described = fields(_MODULE, "NodeStatus")
    rows = [(code(each), "yes" if each.is_final else "no", sentence(described[each.name])) for each in NodeStatus]
    return table(("State of a node", "Final", "Meaning"), rows)


def run_states() -> str:
    """Return a row for each state of a run: name and meaning."""
    described = fields(_MODULE, "RunStatus")
    return table(("State of a run", "Meaning"), [(code(each), sentence(described[each.name])) for each in RunStatus])
