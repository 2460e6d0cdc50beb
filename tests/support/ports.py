"""Free ports for the servers of tests."""

import itertools
import os
import socket

_FIRST, _END = 20_000, 32_768
_numbers = itertools.count(os.getpid() * 61)


def free_port() -> int:
    """Return a port that this process has not returned before.

    The port is below 32,768: the kernel assigns higher ports to clients and to servers that request any port, and
    PostgreSQL stores ports in two signed bytes.
    """
    for number in itertools.islice(_numbers, _END - _FIRST):
        port = _FIRST + number % (_END - _FIRST)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise AssertionError("no port is free")


def free_ports(count: int) -> list[int]:
    """Return distinct free ports."""
    return [free_port() for _ in range(count)]
