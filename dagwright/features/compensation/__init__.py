"""Saga compensation: undo the effects of a failed run, newest first."""
