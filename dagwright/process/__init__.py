"""Parts shared by all processes: event loop, watchdog, process pool, sockets, health endpoints, shutdown.

Imports the errors and optional dependencies of `core`, and nothing else of the engine.
"""
