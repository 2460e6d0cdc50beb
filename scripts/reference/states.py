"""The tables of states, from the descriptions of `NodeStatus` and `RunStatus`.

The table of run states also has the statuses in Temporal.
"""

from temporalio.client import WorkflowExecutionStatus

from dagwright.client.run_lists import REFINED_STATUSES, STATUS_OF_EXECUTION
from dagwright.core.model.states import NodeStatus, RunStatus
from scripts.reference.markdown import code, field_descriptions, sentence, table

_PATH = "dagwright/core/model/states.py"


def node_states_table() -> str:
    """Return a row for each state of a node: name, whether it is final, meaning."""
    descriptions = field_descriptions(_PATH, "NodeStatus")
    rows = [
        (code(state), "yes" if state.is_final else "no", sentence(descriptions[state.name])) for state in NodeStatus
    ]
    return table(("State of a node", "Final", "Meaning"), rows)


def run_states_table() -> str:
    """Return a row for each state of a run: name, meaning, and the statuses that its execution may have in Temporal."""
    descriptions = field_descriptions(_PATH, "RunStatus")
    rows = [
        (code(state), sentence(descriptions[state.name]), ", ".join(_execution_statuses(state))) for state in RunStatus
    ]
    return table(("State of a run", "Meaning", "Status in Temporal"), rows)


def _execution_statuses(status: RunStatus) -> list[str]:
    run_status_by_execution_status = {WorkflowExecutionStatus.RUNNING: RunStatus.RUNNING, **STATUS_OF_EXECUTION}
    return [
        execution_status.name.replace("_", " ").capitalize()
        for execution_status, run_status in run_status_by_execution_status.items()
        if status in (run_status, *REFINED_STATUSES.get(run_status, ()))
    ]
