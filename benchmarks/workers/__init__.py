"""Two, four and eight workers on one Temporal server with PostgreSQL: `python -m benchmarks.workers`."""
