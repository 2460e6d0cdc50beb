"""Load generated shipments into the search server: `python -m dagwright_maritime load`."""

import argparse
import asyncio
import sys
import time
from datetime import UTC, date, datetime

from opensearchpy.exceptions import OpenSearchException

from dagwright.settings import SettingsError, load_settings, settings_as
from dagwright_maritime.index_loading import LoadFailed, load
from dagwright_maritime.indices import Indices
from dagwright_maritime.search.client import display_address, open_client
from dagwright_maritime.search.errors import NoSearchServer
from dagwright_maritime.search.server import find_address
from dagwright_maritime.settings import MaritimeSettings
from dagwright_maritime.shipments import DEFAULT_DOCUMENTS, DEFAULT_SEED, MAX_DOCUMENTS, DataSet

_FAILED, _BAD_USAGE, _SERVER_FAILED = 1, 2, 4
_REPORT_INTERVAL = 100_000


def main() -> int:
    """Load the shipments and return the exit code.

    Returns:
        0 on success, 1 if an index belongs to another program or the server rejects documents, 2 for invalid settings,
        4 if no server runs or a request to the server fails.
    """
    try:
        settings = settings_as(MaritimeSettings, load_settings())
    except SettingsError as error:
        return _report_error(str(error), _BAD_USAGE)
    arguments = _parser(settings.opensearch_prefix).parse_args()
    indices, data_set = arguments.indices, DataSet(arguments.today, arguments.documents, arguments.seed)
    try:
        address = find_address(settings)
        duration_s = asyncio.run(_load(address, indices, data_set))
    except NoSearchServer as error:
        return _report_error(str(error), _SERVER_FAILED)
    except LoadFailed as error:
        return _report_error(str(error), _FAILED)
    except OpenSearchException as error:
        return _report_error(
            f"loading into the search server at {display_address(address)} failed: {error}", _SERVER_FAILED
        )
    sys.stdout.write(
        f"loaded {data_set.document_count:,} shipments of {data_set.today} (seed {data_set.seed}) into "
        f"{indices.prefix}-* at {display_address(address)} in {duration_s:.1f} s\n"
    )
    return 0


def _parser(prefix: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m dagwright_maritime", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    load_command = commands.add_parser("load", help="delete old indices, create new indices and fill them")
    load_command.add_argument(
        "--documents", type=_document_count, default=DEFAULT_DOCUMENTS, help="how many shipments (%(default)s)"
    )
    load_command.add_argument("--seed", type=int, default=DEFAULT_SEED, help="seed of the shipments (%(default)s)")
    load_command.add_argument(
        "--today",
        type=_day,
        default=datetime.now(UTC).date(),
        help="day that decides which shipments have left and arrived, such as 2026-03-31",
    )
    prefix_help = f"prefix of the index names ({prefix})"
    load_command.add_argument(
        "--prefix", dest="indices", metavar="PREFIX", type=_indices, default=Indices(prefix), help=prefix_help
    )
    return parser


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a date; write it like 2026-03-31") from None


def _document_count(text: str) -> int:
    number = int(text)
    if not 1 <= number <= MAX_DOCUMENTS:
        raise argparse.ArgumentTypeError(f"must be 1 to {MAX_DOCUMENTS:,}")
    return number


def _indices(text: str) -> Indices:
    try:
        return Indices(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


async def _load(address: str, indices: Indices, data_set: DataSet) -> float:
    started_s = time.monotonic()
    async with open_client(address) as client:
        await load(client, indices, data_set, on_progress=_print_progress)
    return time.monotonic() - started_s


def _print_progress(sent_count: int) -> None:
    if sent_count % _REPORT_INTERVAL == 0:
        sys.stderr.write(f"{sent_count:,} shipments sent\n")


def _report_error(text: str, code: int) -> int:
    sys.stderr.write(f"{text}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
