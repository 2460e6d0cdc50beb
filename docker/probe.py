"""Health check of the container: `python -I -S probe.py PORT PATH` exits with 0 if the response has the status 200.

It imports only `socket` and `sys`, so a check takes 30 ms of CPU time and starts no thread that could fail.
"""

import socket
import sys

TIMEOUT_S = 8.0
"""Above the 5 s after which a process reports that its event loop is blocked."""


def fetch_status(port: int, path: str) -> int:
    """Return the HTTP status of a path at a port of this machine.

    Raises:
        OSError: there is no response, or it is not HTTP.
    """
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as connection:
        connection.settimeout(TIMEOUT_S)
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode("ascii"))
        status_words = connection.makefile("rb").readline(256).split()
    if len(status_words) < 2 or not status_words[0].startswith(b"HTTP/") or not status_words[1].isdigit():
        raise OSError("the response is not HTTP")
    return int(status_words[1])


if __name__ == "__main__":
    try:
        status = fetch_status(int(sys.argv[1]), sys.argv[2])
    except OSError as error:
        sys.exit(f"no response: {error}")
    sys.exit(None if status == 200 else f"status {status}")
