"""A network namespace for each worker, so that workers share nothing but the server and a folder."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

_ADDRESS_PREFIX = "10.213"
"""First two bytes of the private addresses of the links between workers and the machine."""


@dataclass(frozen=True, slots=True)
class WorkerNetwork:
    """The network of a worker.

    Args:
        command: start of a command that runs in the network.
        host: address of the machine as the worker sees it.
    """

    command: tuple[str, ...]
    host: str


@contextmanager
def worker_networks(count: int) -> Iterator[list[WorkerNetwork]]:
    """Create the networks, and delete them at the end of the block.

    Raises:
        RuntimeError: this machine does not permit network namespaces; the message has the output of `ip`.
    """
    names = [f"dagwright-{os.getpid()}-{number}" for number in range(count)]
    created_names: list[str] = []
    try:
        for number, name in enumerate(names):
            _ip("netns", "add", name)
            created_names.append(name)
            _connect(name, number)
        yield [
            WorkerNetwork(("ip", "netns", "exec", name), f"{_ADDRESS_PREFIX}.{number}.1")
            for number, name in enumerate(names)
        ]
    finally:
        for name in created_names:
            _ip("netns", "delete", name)


def _connect(name: str, number: int) -> None:
    """Connect a namespace with the machine by a pair of interfaces, which are deleted with the namespace."""
    link = f"dw{os.getpid() % 1_000_000}-{number}"
    _ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
    _ip("address", "add", f"{_ADDRESS_PREFIX}.{number}.1/30", "dev", link)
    _ip("link", "set", link, "up")
    for interface in ("lo", "eth0"):
        _ip("-n", name, "link", "set", interface, "up")
    _ip("-n", name, "address", "add", f"{_ADDRESS_PREFIX}.{number}.2/30", "dev", "eth0")


def _ip(*arguments: str) -> None:
    program = shutil.which("ip")
    if program is None:
        raise RuntimeError("the program `ip` is missing")
    outcome = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    if outcome.returncode:
        raise RuntimeError(f"`ip {' '.join(arguments)}` failed: {outcome.stderr.strip()}")
