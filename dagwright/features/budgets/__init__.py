"""Budgets of a run: reservations for running calls, and admission of the calls that wait.

`budget.Budget` holds limits, usage and reservations; `admission` is the component. Imports `core` only.
"""
