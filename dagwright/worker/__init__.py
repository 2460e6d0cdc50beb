"""Parts of a worker process: event loop, health endpoints, process pool, graceful shutdown."""
