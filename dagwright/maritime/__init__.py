"""Questions about shipments, answered from a search server: the data, and the worker tools.

`indices` has the names and mappings, `python -m dagwright.maritime load` fills them with generated shipments. `--tools
dagwright.maritime` serves the workers.
"""

from dagwright.maritime.generating import es_query_gen
from dagwright.maritime.querying import es_query_exec, page_query
from dagwright.maritime.showing import show_results

__all__ = ["es_query_exec", "es_query_gen", "page_query", "show_results"]
