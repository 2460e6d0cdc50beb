"""The same graphs on other engines, each in its own virtual environment: `python -m benchmarks.peers`."""
