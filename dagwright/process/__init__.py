"""What every process of Dagwright needs: event loop, watchdog, process pool, sockets, health endpoints, shutdown.

It imports nothing of the engine.
"""
