"""Checks of a plan before it runs. They report all problems, each with code, JSON pointer and hint.

The entry point is `validation.check_document`. The package imports `core.model` and `core.expressions`.
"""
