"""Budgets of a run: reservations for running calls, and admission of the calls that wait."""
