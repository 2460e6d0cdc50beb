"""State of a run, rebuilt from its event history without a worker and without a query.

`run_reader.RunReader` reads one run; `run_subscriptions` and `token_streams` share the readers between many clients.
Imports `protocol`, the packages that `protocol` imports, and libraries such as `store`; never `client`.
"""
