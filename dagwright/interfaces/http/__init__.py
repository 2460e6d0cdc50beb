"""The gateway: an HTTP server with OpenAI's API for durable runs.

A thin adapter over `dagwright.client`. All state of runs is in Temporal and the payload store, so gateways of the same
Temporal server are interchangeable, and a crash of a gateway loses nothing (docs/decisions/0058). This package must not
import the command line, workflows or activities.
"""
