"""`keys add | list | remove`: manage the keys of the HTTP API. The commands need no server."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.table import Table
from rich.text import Text

from dagwright.interfaces.cli.exit_codes import CommandError, CommandErrorCode, ExitCode
from dagwright.interfaces.cli.output import Output
from dagwright.interfaces.http.api_keys import KeyFile, KeyRejected, KeysUnreadable
from dagwright.interfaces.http.callers import READ_ONLY_SCOPE, KeyScope
from dagwright.server import LocalServer, ServerUnreachable
from dagwright.settings import load_settings


def add(arguments: tuple[str, Sequence[str], float | None], output: Output) -> int:
    """Add a key and show it once.

    Raises:
        CommandError: the owner or a scope is invalid.
    """
    owner, scope_names, weight = arguments
    with _raising_command_errors():
        key, key_text = _key_file().add(owner, _scopes(scope_names), weight=weight)
    problem = _close_temporal_ui()
    if output.is_json:
        output.document({"status": "added", "key": key_text, **key.to_json()})
    else:
        output.print(key_text)
        output.log(f"this is the key of {owner}; it is shown only once, because only its hash is stored")
    if problem is not None:
        output.log(f"the key is valid, but the Temporal UI, which does not check keys, could not be closed: {problem}")
    return ExitCode.COMPLETED


def list_keys(_: None, output: Output) -> int:
    """List the keys without their secrets."""
    with _raising_command_errors():
        key_file = _key_file()
        keys, requires_keys = list(key_file.keys().values()), key_file.requires_keys()
    if output.is_json:
        output.document([key.to_json() for key in keys])
    elif not keys:
        consequence = "no client can call the API" if requires_keys else "the API needs no key"
        output.print(f"there are no keys, so {consequence}; `dagwright keys add OWNER` creates a key")
    else:
        table = Table(box=None, pad_edge=False)
        for name in ("ID", "OWNER", "SCOPES", "WEIGHT", "CREATED"):
            table.add_column(name)
        for key in keys:
            scopes = ", ".join(key.scope_names)
            table.add_row(*(Text(text) for text in (key.id, key.owner, scopes, f"{key.weight:g}", key.created_at)))
        output.show(table)
    return ExitCode.COMPLETED


def remove(id: str, output: Output) -> int:
    """Remove a key. A running HTTP API rejects the key from then on.

    Raises:
        CommandError: there is no key with this ID.
    """
    with _raising_command_errors():
        key = _key_file().remove(id)
    if output.is_json:
        output.document({"status": "removed", **key.to_json()})
    else:
        output.print(f"the key {id} of {key.owner} is removed")
    return ExitCode.COMPLETED


def _close_temporal_ui() -> str | None:
    """Turn off the Temporal UI, which does not check keys, on the server of the state folder.

    Returns:
        The error if the server could not be restarted without the UI, else `None`. After an error, the next command
        that needs the server tries again.
    """
    try:
        asyncio.run(LocalServer(load_settings()).close_ui())
    except ServerUnreachable as error:
        return str(error)
    return None


def _key_file() -> KeyFile:
    return KeyFile(load_settings().api_keys)


def _scopes(names: Sequence[str]) -> list[KeyScope]:
    if list(names) == [READ_ONLY_SCOPE]:
        return []
    try:
        return [KeyScope(name) for name in names] or list(KeyScope)
    except ValueError:
        raise CommandError(
            f"--scope must be one of {', '.join((*KeyScope, READ_ONLY_SCOPE))}; {READ_ONLY_SCOPE} excludes the others"
        ) from None


@contextmanager
def _raising_command_errors() -> Iterator[None]:
    try:
        yield
    except KeyRejected as error:
        raise CommandError(str(error)) from None
    except KeysUnreadable as error:
        raise CommandError(str(error), code=CommandErrorCode.UNREADABLE) from None
