"""Checks of a plan before it runs. Every problem is found at once, with code, JSON pointer and hint.

Start with `validation.check`. Imports `core.model` and `core.expressions`.
"""
