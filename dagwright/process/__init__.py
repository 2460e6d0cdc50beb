"""Parts shared by all processes: event loop, watchdog, process pool, sockets, health endpoints, shutdown.

The package imports `core.errors` and `core.extras`, and nothing else of the engine.
"""
