"""The gateway: an HTTP server with OpenAI's API in front of durable runs.

A thin adapter over `dagwright.client`. It stores nothing that another gateway in front of the same Temporal server
would need: any number of gateways work as one, and a gateway that dies loses nothing (docs/decisions/0058). It must not
import the command line, workflows or activities.
"""
