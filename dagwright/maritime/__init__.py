"""Questions about shipments, answered from a search server: the data, and the worker tools.

`indices` has the names and mappings, `python -m dagwright.maritime load` fills them with generated shipments. `--tools
dagwright.maritime` serves the workers. Other workers ask the index by `reach_search`, `checked` and `answer_of`.
"""

from dagwright.maritime.analyzing import analyze_results
from dagwright.maritime.clarifying import clarify_question
from dagwright.maritime.connection import SERVER_ATTEMPTS, Search, reach_search
from dagwright.maritime.explaining import explain_metadata
from dagwright.maritime.generating import es_query_gen
from dagwright.maritime.helpdesk import common_helpdesk
from dagwright.maritime.metadata import metadata_lookup
from dagwright.maritime.querying import answer_of, checked, es_query_exec, page_query
from dagwright.maritime.showing import show_results
from dagwright.maritime.slots import EsQuery, EsResults

__all__ = [
    "SERVER_ATTEMPTS",
    "EsQuery",
    "EsResults",
    "Search",
    "analyze_results",
    "answer_of",
    "checked",
    "clarify_question",
    "common_helpdesk",
    "es_query_exec",
    "es_query_gen",
    "explain_metadata",
    "metadata_lookup",
    "page_query",
    "reach_search",
    "show_results",
]
