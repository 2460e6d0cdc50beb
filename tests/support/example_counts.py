"""Number of examples of property tests: all of them if `TEST_EXAMPLES` is `full`, else an eighth.

`scripts/run_tests.py` sets the variable for runs that include the slow stages, as `make test-all` does.
"""

import os

_QUICK_RUN_DIVISOR = 8


def example_count(full_count: int) -> int:
    """Return the value of `max_examples`; `full_count` is the value for `make test-all`."""
    return full_count if os.environ.get("TEST_EXAMPLES") == "full" else full_count // _QUICK_RUN_DIVISOR
