"""Dagwright runs plans that must not be lost: graphs of steps, made durable by Temporal."""

__version__ = "0.1.0"
