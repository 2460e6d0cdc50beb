"""The row `texts`: the delay of a model's text in a run, compared with the same text directly from the model.

OpenAI's client reads both texts through the gateway, and the same scripted model writes both slowly.
"""

import statistics
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import uuid4

from openai import AsyncOpenAI
from pydantic import SecretStr

from benchmarks.figures import Figure
from benchmarks.processes import Bench
from benchmarks.rows import Row
from dagwright.interfaces.http.app import create_app
from dagwright.interfaces.http.context import open_context
from dagwright.process.listening import address_of, open_socket, serving_app
from dagwright.settings import Settings
from dagwright.testing import ANY_NUMBER, ModelServer, Step, When, json_text, slow, step, text
from dagwright.toolset.toolset import load_toolset
from dagwright.worker import serving as worker

MAX_FIRST_WORD_DELAY_S = 0.1
"""Permitted additional delay of the first word in a run."""
DIRECT_MODEL, RUN_MODEL = "small", "profile/plan"
_ANSWER_TEXT = "Oslo has rain today, and Bergen has more of it. " * 10
_CHUNK_CHARACTERS = 8
_PACE = {"chunk_characters": _CHUNK_CHARACTERS, "first_byte_delay_s": 0.3, "chunk_delay_s": 0.02}
_PLAN = {"nodes": [{"id": "sum", "tool": "calculator", "arguments": {"expression": "1 + 2"}}]}


@dataclass(frozen=True, slots=True)
class ReadDelays:
    """Delays of a reader compared with the model's output.

    Args:
        first_word_s: seconds since the model sent the first word.
        chunk_delays_s: seconds since the model sent the latest character, for each received chunk.
    """

    first_word_s: float
    chunk_delays_s: Sequence[float]


async def measure_texts(bench: Bench, pair_count: int) -> list[Figure]:
    """Measure the delay of the first and of later words, alternately for the model itself and for a run."""
    delays_by_name: dict[str, list[ReadDelays]] = {DIRECT_MODEL: [], RUN_MODEL: []}
    async with ModelServer(*script()) as model_server, _gateway(bench, model_server) as client:
        for pair in range(pair_count + 1):
            for model_name in (DIRECT_MODEL, RUN_MODEL) if pair % 2 else (RUN_MODEL, DIRECT_MODEL):
                delays = await _read(client, model_server, model_name)
                # The first pair is a warm-up.
                if pair:
                    delays_by_name[model_name].append(delays)
    first_delays_s = {name: [each.first_word_s for each in delays] for name, delays in delays_by_name.items()}
    direct_s, run_s = (statistics.median(first_delays_s[name]) for name in (DIRECT_MODEL, RUN_MODEL))
    later_delays_s = sorted(delay for each in delays_by_name[RUN_MODEL] for delay in each.chunk_delays_s)
    samples = {
        "median": [round(run_s, 4), round(direct_s, 4)],
        "samples": [[round(delay_s, 4) for delay_s in first_delays_s[RUN_MODEL]]],
    }
    return [
        Figure(
            "additional delay of the first word in a run",
            run_s - direct_s,
            MAX_FIRST_WORD_DELAY_S,
            unit="s",
            measured=samples,
        ),
        Figure("delay of words in a run, p95", later_delays_s[int(len(later_delays_s) * 0.95)], None, unit="s"),
    ]


def script() -> Sequence[Step]:
    """Return the responses of the model, for any number of calls."""
    answer = slow(json_text({"answer": _ANSWER_TEXT, "missing": []}), **_PACE)
    return [
        step(json_text(_PLAN), when=When(metadata={"purpose": "plan"}), times=ANY_NUMBER),
        step(answer, when=When(metadata={"purpose": "answer"}), times=ANY_NUMBER),
        step(slow(text(_ANSWER_TEXT), **_PACE), times=ANY_NUMBER),
    ]


@asynccontextmanager
async def _gateway(bench: Bench, model_server: ModelServer) -> AsyncIterator[AsyncOpenAI]:
    """Serve runs and the gateway inside the block, and yield a client."""
    settings = Settings(
        state_dir=bench.settings.state_dir,
        task_queue=f"texts-{uuid4().hex[:8]}",
        model="small",
        openai_base_url=model_server.base_url,
        openai_api_key=SecretStr("key"),
    )
    toolset, listener = load_toolset(settings), open_socket("127.0.0.1", 0)
    async with (
        worker.serving(bench.client, toolset, task_queue=settings.task_queue),
        open_context(settings, bench.connection, toolset, templates={}) as context,
        serving_app(create_app(context), listener, stop_event=context.stop_event),
        AsyncOpenAI(base_url=f"{address_of(listener)}/v1", api_key="none", max_retries=0) as client,
    ):
        yield client


async def _read(client: AsyncOpenAI, model_server: ModelServer, model_name: str) -> ReadDelays:
    """Send one request and read the response to its end."""
    # In a run, the model writes its answer as JSON, and the client receives only the text in it.
    prefix, received_characters, arrivals = (
        "" if model_name == DIRECT_MODEL else '{"answer": "',
        0,
        list[tuple[float, int]](),
    )
    stream = await client.chat.completions.create(
        model=model_name, messages=[{"role": "user", "content": "How is the weather?"}], stream=True
    )
    async for chunk in stream:
        piece = (chunk.choices[0].delta.content or "") if chunk.choices else ""
        if piece:
            received_characters += len(piece)
            arrivals.append((time.time(), received_characters))
    if received_characters != len(_ANSWER_TEXT):
        raise RuntimeError(f"{received_characters} of {len(_ANSWER_TEXT)} characters came from {model_name}")
    sent_at = model_server.sent_at[-1]
    delays = [received_at - sent_at[(len(prefix) + count - 1) // _CHUNK_CHARACTERS] for received_at, count in arrivals]
    return ReadDelays(arrivals[0][0] - sent_at[len(prefix) // _CHUNK_CHARACTERS], delays)


TEXT_ROWS: dict[str, Row] = {"texts": measure_texts}
