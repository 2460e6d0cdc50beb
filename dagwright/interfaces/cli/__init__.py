"""The command line: `starter.py` and `dagwright` (docs/reference/cli.md).

Commands start fast because each imports only its own modules: `app` has the names and options of all commands, and
the module of a command is imported when the command is called. The rest of Dagwright does not import this package.
"""
