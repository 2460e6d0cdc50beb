"""Worker tools that answer questions about shipments from a search server, and a loader for generated
shipments.

`indices` defines the names and mappings of the search indices; `python -m dagwright_maritime load` fills the indices
with generated shipments. `--tools dagwright_maritime` serves the worker tools. Your own worker tools can query the
indices with `connect_search`, `check_query` and `run_query`.
"""

from dagwright_maritime.clarification import clarify_question
from dagwright_maritime.connection import SERVER_ATTEMPTS, Search, connect_search
from dagwright_maritime.helpdesk import common_helpdesk
from dagwright_maritime.metadata import metadata_lookup
from dagwright_maritime.metadata_explanation import explain_metadata
from dagwright_maritime.query_execution import check_query, es_query_exec, page_query, run_query
from dagwright_maritime.query_generation import es_query_gen
from dagwright_maritime.result_analysis import analyze_results
from dagwright_maritime.result_display import show_results
from dagwright_maritime.slots import EsQuery, EsResults

__all__ = [
    "SERVER_ATTEMPTS",
    "EsQuery",
    "EsResults",
    "Search",
    "analyze_results",
    "check_query",
    "clarify_question",
    "common_helpdesk",
    "connect_search",
    "es_query_exec",
    "es_query_gen",
    "explain_metadata",
    "metadata_lookup",
    "page_query",
    "run_query",
    "show_results",
]
