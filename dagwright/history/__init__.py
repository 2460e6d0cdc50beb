"""From event history to the state of a run, without a worker and without a query.

`run_reader.RunFeed` reads one run; `run_subscriptions` and `token_streams` serve many readers of it.
"""
