"""Features of a run beside scheduling, one package each. Pure.

Features import `core` and, where one builds on another, each other. `run_scheduler` attaches them to the scheduler of
a run.
"""
