"""Configuration files of MCP servers: entries, variables, and errors with their location."""

from pathlib import Path
from typing import Any

import pytest

from dagwright.mcp_client.config import Address, Program, ServerConfig, read_servers
from dagwright.tools.errors import ToolLoadError
from tests.support.tool_servers import variables, write_servers


def _read(folder: Path, /, **entries: Any) -> list[ServerConfig]:
    values = variables(TOKEN="t0ken-of-mine", SECRET_KEY="s3cret-key", PLACE="/data", EMPTY="")
    return read_servers(write_servers(folder, **entries), values)


def test_programs_and_addresses_are_parsed_in_order(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    program = {"command": "npx", "args": ["-y", "server", "."], "env": {"LEVEL": "debug"}, "cwd": "sub"}
    address = {"type": "http", "url": "https://mcp.example.com/mcp", "headers": {"X-Team": "a"}}
    # Disabled servers, and keys of other MCP clients, are ignored.
    ignored_keys = {"type": "stdio", "autoApprove": ["a"], "alwaysAllow": [], "description": "d"}
    disabled_entry = {"disabled": True, "nonsense": 1}
    entries = {"files": program, "remote": address, "plain": {"command": "x", **ignored_keys}, "off": disabled_entry}
    files_server, remote_server, plain_server = _read(tmp_path, **entries)
    folder = tmp_path.resolve()
    assert files_server.endpoint == Program("npx", ("-y", "server", "."), {"LEVEL": "debug"}, folder / "sub")
    assert remote_server.endpoint == Address("https://mcp.example.com/mcp", {"X-Team": "a"})
    assert plain_server.endpoint == Program("x", (), {}, folder)
    assert [server.name for server in (files_server, remote_server, plain_server)] == ["files", "remote", "plain"]
    assert files_server.identity != remote_server.identity


def test_variables_are_substituted_and_secrets_are_hidden(tmp_path: Path) -> None:
    args = ["${PLACE}/in", "${NOT_SET:-there}", "$${PLACE}", "--key=${SECRET_KEY}"]
    [server] = _read(tmp_path, a={"command": "x", "args": args, "env": {"TOKEN": "Bearer ${TOKEN}"}})
    arguments = ("/data/in", "there", "${PLACE}", "--key=s3cret-key")
    assert server.endpoint == Program("x", arguments, {"TOKEN": "Bearer t0ken-of-mine"}, tmp_path.resolve())
    assert (server.secrets, "t0ken" in repr(server)) == (("s3cret-key", "t0ken-of-mine"), False)
    # The identity of a server does not depend on values of variables.
    file = write_servers(tmp_path, a={"command": "x", "env": {"TOKEN": "${TOKEN}"}})
    [first], [second] = (read_servers(file, variables(TOKEN=value)) for value in ("a", "b"))
    assert first.identity == second.identity


COMMAND_OR_URL_NEEDED = ": expected exactly one of command (a program) and url (streamable HTTP)"
INVALID_EFFECTS = "/dagwright/effects: Input should be 'read', 'idempotent' or 'write'"
ENV_WITHOUT_COMMAND = "/env: only a program has this key; a server with a url has headers"
TIMEOUT_HINT = 'the unit of a timeout differs between programs; write "dagwright": {"timeout": "30s"}'
SSE_HINT = "the transport sse is not supported; set url to the streamable HTTP address of the server"
MISSING_KEY = ': /mcpServers: expected an object {"name": server}; it has no such key'
DURATION_HINT = "write a number and a unit, such as 500ms, 30s, 5m, 2h or 7d"


def _program(**fields: Any) -> dict[str, Any]:
    return {"command": "x", **fields}


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ([], ": expected an object with command or url"),
        ({}, COMMAND_OR_URL_NEEDED),
        (_program(url="http://h/mcp"), COMMAND_OR_URL_NEEDED),
        ({"comand": "x"}, "/comand: unknown key; did you mean 'command'?"),
        (_program(args="y"), "/args: Input should be a valid list"),
        (_program(env={"N": 1}), "/env/N: Input should be a valid string"),
        (_program(timeout=30), f"/timeout: {TIMEOUT_HINT}"),
        (_program(cwd="none"), "/cwd: there is no folder none"),
        (_program(headers={"a": "b"}), "/headers: a program has no headers; use env"),
        ({"url": "http://h/mcp", "env": {"a": "b"}}, ENV_WITHOUT_COMMAND),
        ({"url": "ftp://h"}, "/url: it is not a URL such as https://mcp.example.com/mcp"),
        ({"type": "sse", "url": "http://h/sse"}, f"/type: {SSE_HINT}"),
        ({"type": "ws", "url": "http://h/ws"}, "/type: 'ws' is neither stdio nor http"),
        (_program(type="http"), "/type: 'http' needs a url, not a command"),
        ({"type": "stdio", "url": "http://h"}, "/type: 'stdio' needs a command, not a url"),
        (_program(env={"T": "${NONE}"}), "/env/T: the variable NONE is not set; set DAGWRIGHT_SECRET_NONE"),
        (_program(dagwright={"effects": "pure"}), INVALID_EFFECTS),
        (_program(dagwright={"timeout": "soon"}), f"/dagwright/timeout: 'soon' is not a duration; {DURATION_HINT}"),
        (
            _program(dagwright={"tools": {"t": {"max_paralel": 0}}}),
            "/dagwright/tools/t/max_paralel: unknown key; did you mean 'max_parallel'?",
        ),
        (
            {"command": "", "dagwright": {"max_parallel": 0}},
            "/command: String should have at least 1 character; "
            "/mcpServers/a/dagwright/max_parallel: Input should be greater than or equal to 1",
        ),
    ],
)
def test_problem_is_reported_with_its_pointer(entry: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ToolLoadError) as error:
        _read(tmp_path, a=entry)
    assert str(error.value) == f"servers.json: /mcpServers/a{message}"
    with pytest.raises(ToolLoadError) as error:
        _read(tmp_path, a=entry, b={"command": "x"}, c=[])
    second_problem = "/mcpServers/c: expected an object with command or url"
    assert str(error.value) == f"servers.json: /mcpServers/a{message}; {second_problem}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", " is not JSON: Expecting property name enclosed in double quotes (line 1, column 2)"),
        ("[]", " is not a file of MCP servers: it is not a JSON object"),
        ("{}", MISSING_KEY),
        ('{"mcpservers": {}}', f"{MISSING_KEY}, but 'mcpservers'"),
        ('{"mcpServers": {}}', " has no enabled MCP server"),
        ('{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}', ": the key 'a' occurs twice in one object"),
    ],
)
def test_unusable_file_is_rejected(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "servers.json"
    with pytest.raises(ToolLoadError, match=r"There is no file .*servers\.json of MCP servers"):
        read_servers(file, variables())
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ToolLoadError) as error:
        read_servers(file, variables())
    assert str(error.value) == f"servers.json{message}"
