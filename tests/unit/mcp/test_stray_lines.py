"""What a command tells of a server that prints what is no message of the protocol."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.waits

_STARTER = Path(__file__).parents[3] / "starter.py"


def test_stray_line_of_a_server_is_told_without_a_traceback(tmp_path: Path) -> None:
    servers = {"notes": {"command": sys.executable, "args": ["-c", "print('welcome')"]}}
    (tmp_path / "servers.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    (tmp_path / "plan.json").write_text('{"plan": 1, "nodes": [{"id": "a", "tool": "wait"}]}', encoding="utf-8")
    command = [sys.executable, str(_STARTER), "check", "plan.json", "--tools", "servers.json"]
    end = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (end.returncode, end.stdout) == (2, "")
    assert end.stderr.splitlines() == [
        "Failed to parse JSONRPC message from server",
        f"the MCP server 'notes': program {sys.executable} cannot be reached: Connection closed",
    ]


def test_server_that_prints_nothing_else_does_not_fill_the_terminal(tmp_path: Path) -> None:
    # It refuses the first request: a server that ended could be lost before its lines are read.
    program = (
        "import json, sys\nfor number in range(500): print('welcome', number)\n"
        "asked = json.loads(sys.stdin.readline())['id']\n"
        "print(json.dumps({'jsonrpc': '2.0', 'id': asked, 'error': {'code': -1, 'message': 'no'}}), flush=True)"
    )
    servers = {"notes": {"command": sys.executable, "args": ["-c", program]}}
    (tmp_path / "servers.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    (tmp_path / "plan.json").write_text('{"plan": 1, "nodes": [{"id": "a", "tool": "wait"}]}', encoding="utf-8")
    command = [sys.executable, str(_STARTER), "check", "plan.json", "--tools", "servers.json"]
    end = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    line = "Failed to parse JSONRPC message from server"
    assert end.stderr.splitlines()[:-1] == [*[line] * 4, f"{line} (any more such lines are left out)"]
