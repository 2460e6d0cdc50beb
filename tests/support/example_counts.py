"""Number of examples of property tests: an eighth, or all of them if `TEST_EXAMPLES` is `full`.

`scripts/run_tests.py` sets it for runs that include the slow stages, as `make test-all` does.
"""

import os

_SHARE_OF_A_QUICK_RUN = 8


def examples(full: int) -> int:
    """Return the number for `max_examples`; `full` is that of `make test-all`."""
    return full if os.environ.get("TEST_EXAMPLES") == "full" else full // _SHARE_OF_A_QUICK_RUN
