"""Files of MCP servers: what is read, and what is refused at which place."""

import json
from pathlib import Path
from typing import Any

import pytest

from dagwright.mcp_client.config import Address, Program, ServerConfig, ServerRules, ToolRules, read_servers
from dagwright.tools.errors import ToolsUnreadable
from tests.support.tool_servers import variables, write_servers


def _read(folder: Path, /, **entries: Any) -> list[ServerConfig]:
    values = variables(TOKEN="t0ken-of-mine", SECRET_KEY="s3cret-key", PLACE="/data", EMPTY="")
    return read_servers(write_servers(folder, **entries), values)


def test_programs_and_addresses_are_read_in_order(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    program = {"command": "npx", "args": ["-y", "server", "."], "env": {"LEVEL": "debug"}, "cwd": "sub"}
    address = {"type": "http", "url": "https://mcp.example.com/mcp", "headers": {"X-Team": "a"}}

    files, remote = _read(tmp_path, files=program, remote=address)

    assert (files.name, files.where) == (
        "files",
        Program("npx", ("-y", "server", "."), {"LEVEL": "debug"}, tmp_path.resolve() / "sub"),
    )
    assert (remote.name, remote.where) == ("remote", Address("https://mcp.example.com/mcp", {"X-Team": "a"}))
    assert files.identity != remote.identity


def test_a_server_starts_in_the_folder_of_its_file(tmp_path: Path) -> None:
    [server] = _read(tmp_path, a={"command": "x"})
    assert isinstance(server.where, Program)
    assert server.where.cwd == tmp_path.resolve()


def test_keys_of_other_programs_and_disabled_servers_change_nothing(tmp_path: Path) -> None:
    entry = {"command": "x", "type": "stdio", "autoApprove": ["a"], "alwaysAllow": [], "description": "d"}
    assert [server.name for server in _read(tmp_path, a=entry, b={"disabled": True, "nonsense": 1})] == ["a"]


def test_rules_of_a_tool_stand_over_those_of_its_server(tmp_path: Path) -> None:
    rules = {"timeout": "5s", "max_parallel": 2, "tools": {"get": {"effects": "read", "max_parallel": 9}}}
    [server] = _read(tmp_path, a={"command": "x", "dagwright": rules})
    assert server.rules == ServerRules(
        timeout="5s", max_parallel=2, tools={"get": ToolRules(effects="read", max_parallel=9)}
    )
    assert server.rules.tools["get"].over(server.rules) == ToolRules(effects="read", timeout="5s", max_parallel=9)


def test_variables_are_filled_in_and_hidden_where_they_may_be_secrets(tmp_path: Path) -> None:
    program = {
        "command": "x",
        "args": ["${PLACE}/in", "${NOT_SET:-there}", "$${PLACE}", "--key=${SECRET_KEY}"],
        "env": {"TOKEN": "Bearer ${TOKEN}"},
    }
    [server] = _read(tmp_path, a=program)
    assert server.where == Program(
        "x",
        ("/data/in", "there", "${PLACE}", "--key=s3cret-key"),
        {"TOKEN": "Bearer t0ken-of-mine"},
        tmp_path.resolve(),
    )
    assert server.secrets == ("s3cret-key", "t0ken-of-mine")
    assert "t0ken" not in repr(server)


def test_what_a_server_is_does_not_hang_on_values_of_variables(tmp_path: Path) -> None:
    file = write_servers(tmp_path, a={"command": "x", "env": {"TOKEN": "${TOKEN}"}})
    [one], [other] = (read_servers(file, variables(TOKEN=value)) for value in ("a", "b"))
    assert one.identity == other.identity


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ([], "/mcpServers/a: expected an object with command or url"),
        ({}, "/mcpServers/a: expected exactly one of command (a program) and url (streamable HTTP)"),
        (
            {"command": "x", "url": "http://h/mcp"},
            "/mcpServers/a: expected exactly one of command (a program) and url (streamable HTTP)",
        ),
        ({"comand": "x"}, "/mcpServers/a/comand: unknown key; did you mean 'command'?"),
        ({"command": "x", "args": "y"}, "/mcpServers/a/args: Input should be a valid list"),
        ({"command": "x", "env": {"N": 1}}, "/mcpServers/a/env/N: Input should be a valid string"),
        (
            {"command": "x", "timeout": 30},
            '/mcpServers/a/timeout: programs differ in its unit; write "dagwright": {"timeout": "30s"}',
        ),
        ({"command": "x", "cwd": "none"}, "/mcpServers/a/cwd: there is no folder none"),
        (
            {"command": "x", "headers": {"a": "b"}},
            "/mcpServers/a/headers: a program has none; give it what it needs as env",
        ),
        (
            {"url": "http://h/mcp", "env": {"a": "b"}},
            "/mcpServers/a/env: only a program has it; a server that is reached by its url has headers",
        ),
        ({"url": "ftp://h"}, "/mcpServers/a/url: it is no address such as https://mcp.example.com/mcp"),
        (
            {"type": "sse", "url": "http://h/sse"},
            "/mcpServers/a/type: the old transport sse is not spoken; give the server's streamable HTTP address as url",
        ),
        ({"type": "ws", "url": "http://h/ws"}, "/mcpServers/a/type: 'ws' is neither stdio nor http"),
        ({"type": "http", "command": "x"}, "/mcpServers/a/type: 'http' needs a url, and there is a command"),
        ({"type": "stdio", "url": "http://h"}, "/mcpServers/a/type: 'stdio' needs a command, and there is a url"),
        (
            {"command": "x", "env": {"T": "${NONE}"}},
            "/mcpServers/a/env/T: the variable NONE is not set; set DAGWRIGHT_SECRET_NONE",
        ),
        (
            {"command": "x", "dagwright": {"effects": "pure"}},
            "/mcpServers/a/dagwright/effects: Input should be 'read', 'idempotent' or 'write'",
        ),
        (
            {"command": "x", "dagwright": {"timeout": "soon"}},
            "/mcpServers/a/dagwright/timeout: 'soon' is no duration; "
            "write a number and a unit, such as 500ms, 30s, 5m, 2h or 7d",
        ),
        (
            {"command": "x", "dagwright": {"tools": {"t": {"max_paralel": 0}}}},
            "/mcpServers/a/dagwright/tools/t/max_paralel: unknown key; did you mean 'max_parallel'?",
        ),
        (
            {"command": "", "dagwright": {"max_parallel": 0}},
            "/mcpServers/a/command: String should have at least 1 character; "
            "/mcpServers/a/dagwright/max_parallel: Input should be greater than or equal to 1",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_place(entry: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(ToolsUnreadable) as refused:
        _read(tmp_path, a=entry)
    assert str(refused.value) == f"servers.json: {said}"


def test_all_servers_that_are_wrong_are_told(tmp_path: Path) -> None:
    with pytest.raises(ToolsUnreadable) as refused:
        _read(tmp_path, a={"comand": "x"}, b={"command": "x"}, c=[])
    assert str(refused.value) == (
        "servers.json: /mcpServers/a/comand: unknown key; did you mean 'command'?; "
        "/mcpServers/c: expected an object with command or url"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "servers.json is no JSON: Expecting property name enclosed in double quotes (line 1, column 2)"),
        ("[]", "servers.json is no file of MCP servers: it is no JSON object"),
        ("{}", 'servers.json: /mcpServers: expected an object {"name": server}; it has no such key'),
        (
            json.dumps({"mcpservers": {}}),
            "servers.json: /mcpServers: expected an object {\"name\": server}; did you mean 'mcpservers'?",
        ),
        (json.dumps({"mcpServers": {}}), "servers.json has no MCP server that is not disabled"),
        (
            '{"mcpServers": {"a": {"command": "one"}, "a": {"command": "two"}}}',
            "servers.json: the key 'a' stands twice in one object",
        ),
    ],
)
def test_a_file_without_servers_is_refused(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "servers.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ToolsUnreadable) as refused:
        read_servers(file, variables())
    assert str(refused.value) == said


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ToolsUnreadable, match=r"There is no file .*none\.json of MCP servers"):
        read_servers(tmp_path / "none.json", variables())
