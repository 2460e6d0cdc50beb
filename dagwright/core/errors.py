"""The base of every error of the Python API.

The errors stay in the modules that raise them; this base lets a caller catch all of them with one `except`:

DagwrightError
├── PlanInvalid           fix the plan, or the inputs that it is started with
├── RunNotFound           use the id of an existing run
├── RunIdInUse            choose another id, or start the run with the plan and inputs that it has
├── CommandRejected       fix the command, or read the state of the run again
├── FeedbackRejected      fix the answer, or read the open requests again
├── ToolError             raised by tools: `RetryLater` is tried again, `GiveUp` is final
├── ToolLoadError       fix the tools or the file of agents
├── ServerUnreachable     start a server, or fix its address
├── StoreError            fix the payload store, or try again
├── ClientClosed          connect again
├── SettingsError         fix the environment variable that the message names
└── ...                   the docstring of each error class names the remedy
"""


class DagwrightError(Exception):
    """Base of all errors that Dagwright raises on purpose; the message is written for the user."""


class ClientClosed(DagwrightError, RuntimeError):
    """The client is closed; connect again."""
