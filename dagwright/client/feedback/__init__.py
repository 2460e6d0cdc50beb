"""The client side of human-in-the-loop requests: open requests of one run or of all runs, and answers to them.

- `open_requests`: open requests, and where their answers go
- `namespace_requests`, `answer_sending`: read the requests of a run and its sub-plans; send answers
- `inbox`: pages of the requests of all runs
- `feedback_request`: requests and answers of the Python API

The package imports `history`, `protocol` and lower-level packages. `features.feedback` is the side of the run.
"""
