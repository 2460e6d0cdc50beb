"""The command line: `starter.py` and `dagwright` (docs/cli.md).

Commands start fast because each imports only what it needs: `app` holds the names and options of all of them and
loads the module of a command when it is called. Nothing in this package is imported by the rest of Dagwright.
"""
