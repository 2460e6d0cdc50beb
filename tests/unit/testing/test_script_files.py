"""Scripts in files: what they can say, what is refused, and the program that serves them."""

import asyncio
import signal
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from dagwright.testing import ScriptNotFollowed, ScriptUnreadable, read_script

SCRIPT = """
models: [small]
steps:
  - when: {metadata: {purpose: planner}, streamed: false}
    json: {nodes: []}
  - text: Slow
    pace: {first: 10ms, each: 0.01, characters: 2}
    usage: {prompt: 3, completion: 4, cached: 2}
  - text: Look
    tool_calls: [{name: look, arguments: {at: Oslo}}]
  - error: {status: 429, message: wait, retry_after: 2}
  - raw: {status: 200, body: "<html>", content_type: text/html}
  - connection: reset
  - when: {text: extra}
    times: any
    text: Extra
"""


def saved(folder: Path, content: str) -> Path:
    path = folder / "script.yaml"
    path.write_text(content, encoding="utf-8")
    return path


async def ask(base_url: str, **fields: Any) -> httpx.Response:
    body = {"model": "small", "messages": [{"role": "user", "content": "?"}], **fields}
    async with httpx.AsyncClient(timeout=10) as client:
        return await client.post(f"{base_url}/chat/completions", json=body)


async def test_a_file_can_say_everything(tmp_path: Path) -> None:
    async with read_script(saved(tmp_path, SCRIPT)) as server:
        slow = (await ask(server.base_url)).json()
        planned = (await ask(server.base_url, metadata={"purpose": "planner"})).json()
        calls = (await ask(server.base_url)).json()["choices"][0]["message"]
        busy = await ask(server.base_url)
        page = await ask(server.base_url)
        with pytest.raises(httpx.ReadError):
            await ask(server.base_url)
        assert (await ask(server.base_url, model="large")).status_code == 404
    assert planned["choices"][0]["message"]["content"] == '{"nodes": []}'
    assert slow["choices"][0]["message"]["content"] == "Slow"
    assert (slow["usage"]["total_tokens"], slow["usage"]["prompt_tokens_details"]) == (7, {"cached_tokens": 2})
    assert (calls["content"], calls["tool_calls"][0]["function"]["arguments"]) == ("Look", '{"at": "Oslo"}')
    assert (busy.status_code, busy.headers["retry-after"], busy.json()["error"]["message"]) == (429, "2", "wait")
    assert (page.text, page.headers["content-type"]) == ("<html>", "text/html")


ANSWERS = """
def echo(call):
    return f"You said {call.messages[-1]['content']}"

def listed(call):
    return {"model": call.model}

def broken(call):
    return call.metadata["purpose"]
"""


async def test_an_answer_is_made_of_the_call_by_a_function_beside_the_script(tmp_path: Path) -> None:
    (tmp_path / "answers.py").write_text(ANSWERS, encoding="utf-8")
    steps = "steps: [{function: answers.py:echo, usage: {prompt: 3, completion: 4}}, {function: answers.py:listed}]"
    async with read_script(saved(tmp_path, steps)) as server:
        told = [(await ask(server.base_url)).json() for _ in range(2)]
    assert [each["choices"][0]["message"]["content"] for each in told] == ["You said ?", '{"model": "small"}']
    assert told[0]["usage"]["total_tokens"] == 7


async def test_a_function_that_fails_is_told_to_the_call_and_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "answers.py").write_text(ANSWERS, encoding="utf-8")
    server = read_script(saved(tmp_path, "steps: [{function: answers.py:broken}]"))
    with pytest.raises(ScriptNotFollowed) as caught:
        async with server:
            answer = await ask(server.base_url)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "unexpected_call")
    _, title, call = str(caught.value).splitlines()
    assert title == "calls that no step answers:"
    assert call.endswith("last message: '?': its answer cannot be made: KeyError: 'purpose'")


async def test_the_pace_of_a_script_is_that_of_steps_without_one(tmp_path: Path) -> None:
    (tmp_path / "answers.py").write_text(ANSWERS, encoding="utf-8")
    script = "pace: {first: 20ms}\nsteps: [{text: a}, {text: b, pace: {first: 40ms}}, {function: answers.py:listed}]"
    took_s = []
    async with read_script(saved(tmp_path, script)) as server:
        for _ in range(3):
            asked_at = time.monotonic()
            await ask(server.base_url)
            took_s.append(time.monotonic() - asked_at)
    assert [took >= pace for took, pace in zip(took_s, (0.02, 0.04, 0.02), strict=True)] == [True] * 3


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("answers.py:nobody", "function: 'answers.py:nobody': there is no function 'nobody' in 'answers.py'"),
        ("others.py:echo", "function: there is no Python file 'others.py' beside the script; write FILE.py:NAME"),
        ("echo", "function: there is no Python file '' beside the script; write FILE.py:NAME"),
        ("broken.py:echo", "function: broken.py: NameError: name 'unknown' is not defined"),
    ],
)
def test_a_function_that_is_not_there_is_refused(function: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "answers.py").write_text(ANSWERS, encoding="utf-8")
    (tmp_path / "broken.py").write_text("unknown", encoding="utf-8")
    with pytest.raises(ScriptUnreadable) as caught:
        read_script(saved(tmp_path, f"steps: [{{function: {function}}}]"))
    assert str(caught.value) == f"{tmp_path / 'script.yaml'}: {words}"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("steps: [", "while parsing"),
        ("[]", "the script: "),
        ("steps: [{}]", "steps.0: Value error, a step has exactly one of text, json, function, tool_calls"),
        ("steps: [{text: a, json: 1}]", "steps.0: Value error, a step has exactly one of"),
        ("steps: [{text: a, tmies: 2}]", "steps.0.tmies: unknown key"),
        ("steps: [{error: {status: 200}}]", "steps.0.error.status: "),
        ("steps: [{text: a, pace: {first: soon}}]", "steps.0.pace.first: Value error, 'soon' is no duration"),
    ],
)
def test_a_file_that_is_no_script_is_refused_with_the_place(content: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ScriptUnreadable) as caught:
        read_script(saved(tmp_path, content))
    assert f"script.yaml: {words}" in str(caught.value).replace("\n", " ")


async def started(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "dagwright.testing", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


@pytest.mark.waits
@pytest.mark.parametrize(("asked", "code"), [(True, 0), (False, 1)])
async def test_the_program_serves_a_file_and_says_at_its_end_what_was_left(
    asked: bool, code: int, tmp_path: Path
) -> None:
    process = await started(str(saved(tmp_path, "steps: [{text: Hello}]")))
    assert process.stdout is not None
    base_url = (await process.stdout.readline()).decode().strip()
    if asked:
        assert (await ask(base_url)).json()["choices"][0]["message"]["content"] == "Hello"
    process.send_signal(signal.SIGTERM)
    _, told = await process.communicate()
    assert process.returncode == code
    assert ("answers that nobody asked for" in told.decode()) is not asked


@pytest.mark.waits
async def test_the_program_refuses_what_is_no_script(tmp_path: Path) -> None:
    process = await started(str(tmp_path / "none.yaml"))
    out, told = await process.communicate()
    assert (process.returncode, out) == (2, b"")
    assert told.decode().strip() == f"{tmp_path / 'none.yaml'}: No such file or directory"
