"""Parts that every process uses: event loop, watchdog, process pool, sockets, health endpoints, shutdown.

It imports nothing of the engine.
"""
