"""Names, limits and JSON decoding of everything that crosses a process.

`wire` has the names, `limits` the numbers, `decoding` the one way to read JSON. Constants never derive from Python
names.
"""
