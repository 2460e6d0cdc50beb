"""Names, limits and JSON decoding of all data that crosses a process boundary.

`wire` has the names, `limits` the numbers, `decoding` the only JSON decoder. Constants are never derived from Python
names. The modules may import `core.model`.
"""
