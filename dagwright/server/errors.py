"""The one error of this package, in a module of its own so that every other module can raise it."""


class NoServer(Exception):
    """No Temporal server could be had; the text is one sentence that says why and what to do."""
