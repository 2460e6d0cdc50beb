"""Script files: their steps, the rejection of invalid files, and the program that serves a script file."""

import asyncio
import signal
import socket
import sys
import time
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Any

import httpx
import pytest

from dagwright.testing import ScriptInvalid, ScriptNotFollowed, read_script
from dagwright.testing.__main__ import main

SCRIPT = """
models: [small]
steps:
  - when: {metadata: {purpose: planner}, is_streamed: false}
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


def save_script(folder: Path, content: str) -> Path:
    path = folder / "script.yaml"
    path.write_text(content, encoding="utf-8")
    return path


async def post_chat(base_url: str, **fields: Any) -> httpx.Response:
    body = {"model": "small", "messages": [{"role": "user", "content": "?"}], **fields}
    async with httpx.AsyncClient(timeout=10) as client:
        return await client.post(f"{base_url}/chat/completions", json=body)


async def test_script_file_supports_all_options(tmp_path: Path) -> None:
    async with read_script(save_script(tmp_path, SCRIPT)) as server:
        slow_body = (await post_chat(server.base_url)).json()
        planned_body = (await post_chat(server.base_url, metadata={"purpose": "planner"})).json()
        calls_message = (await post_chat(server.base_url)).json()["choices"][0]["message"]
        busy_response = await post_chat(server.base_url)
        page_response = await post_chat(server.base_url)
        with pytest.raises(httpx.ReadError):
            await post_chat(server.base_url)
        assert (await post_chat(server.base_url, model="large")).status_code == 404
    assert planned_body["choices"][0]["message"]["content"] == '{"nodes": []}'
    assert slow_body["choices"][0]["message"]["content"] == "Slow"
    assert slow_body["usage"]["total_tokens"] == 7
    assert slow_body["usage"]["prompt_tokens_details"] == {"cached_tokens": 2}
    assert calls_message["content"] == "Look"
    assert calls_message["tool_calls"][0]["function"]["arguments"] == '{"at": "Oslo"}'
    assert (busy_response.status_code, busy_response.headers["retry-after"]) == (429, "2")
    assert busy_response.json()["error"]["message"] == "wait"
    assert (page_response.text, page_response.headers["content-type"]) == ("<html>", "text/html")


RESPONSE_FUNCTIONS = """
def echo(call):
    return f"You said {call.messages[-1]['content']}"

def object_response(call):
    return {"model": call.model}

def raise_key_error(call):
    return call.metadata["purpose"]
"""


@pytest.fixture
def folder_with_functions(tmp_path: Path) -> Path:
    (tmp_path / "answers.py").write_text(RESPONSE_FUNCTIONS, encoding="utf-8")
    return tmp_path


async def test_function_next_to_the_script_builds_the_response(folder_with_functions: Path) -> None:
    echo_step = "{function: answers.py:echo, usage: {prompt: 3, completion: 4}}"
    steps = f"steps: [{echo_step}, {{function: answers.py:object_response}}]"
    async with read_script(save_script(folder_with_functions, steps)) as server:
        bodies = [(await post_chat(server.base_url)).json() for _ in range(2)]
    assert [body["choices"][0]["message"]["content"] for body in bodies] == ["You said ?", '{"model": "small"}']
    assert bodies[0]["usage"]["total_tokens"] == 7
    script = save_script(folder_with_functions, "steps: [{function: answers.py:raise_key_error}]")
    with pytest.raises(ScriptNotFollowed) as caught:
        async with read_script(script) as server:
            response = await post_chat(server.base_url)
    assert (response.status_code, response.json()["error"]["code"]) == (400, "unexpected_call")
    _, title, call = str(caught.value).splitlines()
    assert title == "calls without a matching step:"
    assert call.endswith("last message: '?': its response cannot be built: KeyError: 'purpose'")


async def test_pace_of_a_script_applies_to_steps_without_a_pace(folder_with_functions: Path) -> None:
    steps = "[{text: a}, {text: b, pace: {first: 40ms}}, {function: answers.py:object_response}]"
    script = f"pace: {{first: 20ms}}\nsteps: {steps}"
    async with read_script(save_script(folder_with_functions, script)) as server:
        for pace_s in (0.02, 0.04, 0.02):
            sent_at = time.monotonic()
            await post_chat(server.base_url)
            assert time.monotonic() - sent_at >= pace_s


FILE_HINT = "next to the script; write FILE.py:NAME"


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("answers.py:missing", "'answers.py:missing': there is no function 'missing' in 'answers.py'"),
        ("others.py:echo", f"there is no Python file 'others.py' {FILE_HINT}"),
        ("echo", f"there is no Python file '' {FILE_HINT}"),
        ("broken.py:echo", "broken.py: NameError: name 'unknown' is not defined"),
    ],
)
def test_missing_function_is_rejected(function: str, message: str, folder_with_functions: Path) -> None:
    (folder_with_functions / "broken.py").write_text("unknown", encoding="utf-8")
    with pytest.raises(ScriptInvalid) as caught:
        read_script(save_script(folder_with_functions, f"steps: [{{function: {function}}}]"))
    assert str(caught.value) == f"{folder_with_functions / 'script.yaml'}: function: {message}"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("steps: [", "while parsing"),
        ("[]", "the script: "),
        ("steps: [{}]", "steps.0: Value error, a step has exactly one of text, json, function, tool_calls"),
        ("steps: [{text: a, json: 1}]", "steps.0: Value error, a step has exactly one of"),
        ("steps: [{text: a, tmies: 2}]", "steps.0.tmies: unknown key"),
        ("steps: [{error: {status: 200}}]", "steps.0.error.status: "),
        ("steps: [{text: a, pace: {first: soon}}]", "steps.0.pace.first: Value error, 'soon' is not a duration"),
    ],
)
def test_invalid_script_file_is_rejected_with_its_location(content: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ScriptInvalid) as caught:
        read_script(save_script(tmp_path, content))
    assert f"script.yaml: {message}" in str(caught.value).replace("\n", " ")


async def start_server(path: Path) -> Process:
    command = [sys.executable, "-m", "dagwright.testing", str(path)]
    return await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)


@pytest.mark.waits
@pytest.mark.parametrize(("is_called", "exit_code"), [(True, 0), (False, 1)])
async def test_program_serves_a_file_and_reports_unused_steps(is_called: bool, exit_code: int, tmp_path: Path) -> None:
    process = await start_server(save_script(tmp_path, "steps: [{text: Hello}]"))
    assert process.stdout is not None
    base_url = (await process.stdout.readline()).decode().strip()
    if is_called:
        assert (await post_chat(base_url)).json()["choices"][0]["message"]["content"] == "Hello"
    process.send_signal(signal.SIGTERM)
    _, stderr = await process.communicate()
    assert (process.returncode, "unused steps" in stderr.decode()) == (exit_code, not is_called)


@pytest.mark.waits
async def test_program_rejects_a_missing_file(tmp_path: Path) -> None:
    process = await start_server(tmp_path / "none.yaml")
    stdout, stderr = await process.communicate()
    message = f"{tmp_path / 'none.yaml'}: No such file or directory"
    assert (process.returncode, stdout, stderr.decode().strip()) == (2, b"", message)


def test_port_in_use_is_reported_with_the_fix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = save_script(tmp_path, "steps: [{text: hello}]")
    with socket.create_server(("127.0.0.1", 0)) as listening_socket:
        port = listening_socket.getsockname()[1]
        assert main([str(file), "--port", str(port)]) == 1
    assert f"port {port} of 127.0.0.1 is in use: end the process that uses it" in capsys.readouterr().err
