"""Questions about shipments, answered from a search server: the data, and the worker tools.

`indices` has the names and mappings, `python -m dagwright.maritime load` fills them with generated shipments. `--tools
dagwright.maritime` serves the workers.
"""

from dagwright.maritime.analyzing import analyze_results
from dagwright.maritime.clarifying import clarify_question
from dagwright.maritime.explaining import explain_metadata
from dagwright.maritime.generating import es_query_gen
from dagwright.maritime.helpdesk import common_helpdesk
from dagwright.maritime.metadata import metadata_lookup
from dagwright.maritime.querying import es_query_exec, page_query
from dagwright.maritime.showing import show_results

__all__ = [
    "analyze_results",
    "clarify_question",
    "common_helpdesk",
    "es_query_exec",
    "es_query_gen",
    "explain_metadata",
    "metadata_lookup",
    "page_query",
    "show_results",
]
