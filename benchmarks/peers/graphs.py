"""The sizes and the steps of the compared graphs. The programs of all engines call these steps.

The programs of LangGraph and DBOS import this module in environments without Dagwright.
"""

import time
import zlib
from pathlib import Path

CHAIN_LENGTH = 50
FAN_WIDTH = 200
LAYERS = 5
LAYER_WIDTH = 4
DOCUMENTS = 50
DOCUMENT_BYTES = 10_000
EFFECT_COUNT = 60
EFFECT_S = 0.02

CHAIN = "chain of 50"
FAN_OUT = "fan-out of 200"
LAYERED = "5 layers of 4"
DOCUMENT_FAN = "50 documents of 10 KB"
GRAPHS = (CHAIN, FAN_OUT, LAYERED, DOCUMENT_FAN)
NODE_COUNTS = {
    CHAIN: CHAIN_LENGTH,
    FAN_OUT: FAN_WIDTH + 2,
    LAYERED: LAYERS * LAYER_WIDTH + 1,
    DOCUMENT_FAN: DOCUMENTS + 2,
}

EFFECT_CHAIN = "chain of 60 effects"
"""Each step appends a line to a file; the process is killed in the middle."""
LEDGER = "ledger"
"""Name of the file to which the steps append."""


def total(values: list[int]) -> int:
    """Return the sum of the values."""
    return sum(values)


def draft() -> str:
    """Return a document."""
    return "".join(chr(97 + index % 26) for index in range(DOCUMENT_BYTES))


def rotate(text: str, shift: int) -> str:
    """Move the first `shift` characters of a document to its end."""
    return text[shift:] + text[:shift]


def checksum(texts: list[str]) -> int:
    """Return the checksum of the documents, in order."""
    return zlib.crc32("".join(texts).encode())


def append(ledger: str, number: int) -> int:
    """Take some time, append the number of the step to the ledger, and return the number of the next step."""
    time.sleep(EFFECT_S)
    with Path(ledger).open("a", encoding="ascii") as file:
        file.write(f"{number}\n")
    return number + 1


def expected_results() -> dict[str, int]:
    """Return the result of each graph, computed without an engine."""
    layer = list(range(LAYER_WIDTH))
    for _ in range(LAYERS - 1):
        layer = [total([index, *layer]) for index in range(LAYER_WIDTH)]
    return {
        CHAIN: CHAIN_LENGTH,
        FAN_OUT: total([1 + index for index in range(FAN_WIDTH)]),
        LAYERED: total(layer),
        DOCUMENT_FAN: checksum([rotate(draft(), shift) for shift in range(DOCUMENTS)]),
    }
