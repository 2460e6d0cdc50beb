"""The same graphs on other engines, each in a virtual environment of its own: `python -m benchmarks.peers`."""
