"""Questions about shipments, answered from a search server: the data, and the worker tools.

`indices` has the names and mappings, `python -m dagwright.maritime load` fills them with generated shipments.
"""
