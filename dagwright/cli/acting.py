"""`cancel`: commands that change a run that goes on."""

from dagwright.cli.async_runs import Farewell, run_async
from dagwright.cli.connecting import command_settings
from dagwright.cli.exits import ExitCode
from dagwright.cli.output import Output, acted
from dagwright.cli.requests import CancelRequest
from dagwright.client import RunClosed, open_runs
from dagwright.server import open_connection


def cancel(request: CancelRequest, output: Output) -> int:
    """Asks a run to stop and returns at once: its steps are told, and clean up in their own time.

    Returns:
        2 if the run has ended.
    """
    settings = command_settings()

    async def work(_: Farewell) -> int:
        async with open_connection(settings) as connection:
            runs = open_runs(connection, settings)
            try:
                await runs.cancel(request.workflow_id, reason=request.reason, by=request.by)
            except RunClosed as error:
                if output.is_json:
                    output.document(acted(request.workflow_id, str(error), ok=False))
                output.tell(str(error))
                return ExitCode.REFUSED
        message = "was asked to stop"
        if output.is_json:
            output.document(acted(request.workflow_id, message))
        else:
            output.say(f"{request.workflow_id} {message}")
        return ExitCode.COMPLETED

    return run_async(work, output)
