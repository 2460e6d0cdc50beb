"""The client side of human-in-the-loop requests: open requests of one run or of all runs, and answers to them.

- `open_requests`: open requests, and where their answers go
- `feedback_client`: read the requests of a run and its sub-plans, and send the answer to one request
- `answer_sending`: select the requests that an answer is for, and send the answer to each run with such a request
- `inbox`: pages of the requests of all runs
- `feedback_request`: requests and answers of the Python API

The package imports `history`, `protocol` and lower-level packages. `features.feedback` handles the same requests inside
of the run.
"""
