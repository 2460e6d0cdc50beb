"""Parts shared by all processes: event loop, watchdog, process pool, sockets, health endpoints, shutdown.

The package does not import the engine.
"""
