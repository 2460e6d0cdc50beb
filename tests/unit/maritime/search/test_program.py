"""Start of a search server with fake programs: missing programs, a failed download, and stale files."""

import asyncio
import errno
import shutil
from pathlib import Path

import pytest

from dagwright_maritime.__main__ import main as maritime_main
from dagwright_maritime.search.__main__ import main as search_main
from dagwright_maritime.search.client import display_address
from dagwright_maritime.search.errors import InstallFailed, NoSearchServer, NotRunning, ProgramMissing, StartFailed
from dagwright_maritime.search.program import get_program
from dagwright_maritime.search.server import LocalSearch, find_address
from dagwright_maritime.settings import MaritimeSettings
from tests.support.eventually import eventually
from tests.support.programs import write_script

_MAVEN_SCRIPT = """
for argument in "$@"; do case $argument in -DoutputDirectory=*) mkdir -p "${argument#*=}";; esac; done
"""
_JAVAC_SCRIPT = """
for argument in "$@"; do case $before in -d) mkdir -p "$argument";; esac; before=$argument; done
"""


@pytest.fixture
def program_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of programs that is the only folder in `PATH`."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sh", "mkdir", "sleep", "cat"):
        program_path = shutil.which(name)
        assert program_path is not None
        (folder / name).symlink_to(program_path)
    monkeypatch.setenv("PATH", str(folder))
    return folder


def write_scripts(folder: Path, **bodies: str) -> None:
    for name, body in bodies.items():
        write_script(folder / name, body)


async def test_missing_programs_are_named(program_folder: Path, tmp_path: Path) -> None:
    for name, package in (("java", "Java 17"), ("mvn", "Maven"), ("javac", "a JDK")):
        message = rf"{name} is not on the path: install {package}.*OPENSEARCH_URL"
        with pytest.raises(ProgramMissing, match=message) as error:
            await get_program(tmp_path / "cache")
        assert error.value.program == name
        write_scripts(program_folder, **{name: ""})


async def test_output_of_maven_is_reported_and_nothing_is_stored(program_folder: Path, tmp_path: Path) -> None:
    write_scripts(program_folder, java="", javac="", mvn="echo the network is down; exit 1")
    with pytest.raises(InstallFailed, match=r"mvn exited with 1(.|\n)*\n  the network is down$"):
        await get_program(tmp_path / "cache")
    assert [path.name for path in (tmp_path / "cache" / "dagwright").iterdir()] == ["search-server.lock"]


async def test_concurrent_calls_build_the_program_once(program_folder: Path, tmp_path: Path) -> None:
    maven_script = f"echo built >>{tmp_path}/builds\n{_MAVEN_SCRIPT}"
    write_scripts(program_folder, java="", mvn=maven_script, javac=_JAVAC_SCRIPT)
    first, second = await asyncio.gather(*(get_program(tmp_path / "cache") for _ in range(2)))
    assert first == second == await get_program(tmp_path / "cache")
    assert (tmp_path / "builds").read_text(encoding="ascii") == "built\n"
    assert sorted(path.name for path in first.folder.iterdir()) == ["classes", "config", "jars"]


async def test_program_cannot_be_installed_without_a_checkout(tmp_path: Path) -> None:
    with pytest.raises(NoSearchServer, match="can only be installed from a checkout"):
        await get_program(tmp_path, sources=tmp_path / "nowhere")


async def test_server_that_ends_at_once_is_reported_with_the_log_of_this_start(
    program_folder: Path, tmp_path: Path
) -> None:
    write_scripts(program_folder, mvn=_MAVEN_SCRIPT, javac=_JAVAC_SCRIPT, java="echo output of an earlier start")
    local_search = LocalSearch(tmp_path / "state", tmp_path / "cache")
    with pytest.raises(StartFailed):
        await local_search.start()
    write_scripts(program_folder, java="echo reading the settings; echo no memory is left")
    with pytest.raises(StartFailed, match=r"the search server has ended: see .*search\.log") as failure:
        await local_search.start()
    assert failure.value.lines == ("reading the settings", "no memory is left")
    assert local_search.find() is None


async def test_address_file_of_a_dead_server_is_ignored(tmp_path: Path) -> None:
    settings = MaritimeSettings(state_dir=tmp_path)
    (tmp_path / "search.json").write_text('{"address": "http://127.0.0.1:9", "pid": 1}', encoding="ascii")
    with pytest.raises(NotRunning, match=r"no search server runs in .*: start one with `make search-server`, or set"):
        find_address(settings)
    assert await LocalSearch.from_settings(settings).stop() is False


def test_configured_address_is_used_and_shown_without_its_password(tmp_path: Path) -> None:
    settings = MaritimeSettings(state_dir=tmp_path, opensearch_url="https://me:hidden@search.example.com")
    assert find_address(settings) == "https://me:hidden@search.example.com"
    assert display_address(find_address(settings)) == "https://search.example.com"


@pytest.mark.parametrize("folder", ["state", "state/deeper"])
async def test_state_folder_that_is_a_file_is_reported(tmp_path: Path, folder: str) -> None:
    (tmp_path / "state").write_text("", encoding="ascii")
    local_search = LocalSearch(tmp_path / folder, tmp_path)
    with pytest.raises(NoSearchServer, match=r"^the state folder cannot be used: /.*: Not a directory$"):
        local_search.find()
    with pytest.raises(NoSearchServer, match=r"^the state folder cannot be used: /"):
        await local_search.start()
    assert not await local_search.stop()


def test_unreadable_state_folder_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def deny_access(path: Path) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr("dagwright.server.daemon.is_locked", deny_access)
    with pytest.raises(NoSearchServer, match=r"^the state folder cannot be used: /.*/search.lock: Permission denied$"):
        LocalSearch(tmp_path, tmp_path).find()


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message_start"),
    [
        (["search", "up"], 4, "the state folder cannot be used: "),
        (["search", "down"], 0, "no search server runs in "),
        (["maritime", "load"], 4, "the state folder cannot be used: "),
    ],
)
def test_commands_print_a_message_if_the_state_folder_is_a_file(
    arguments: list[str],
    exit_code: int,
    message_start: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "state").write_text("", encoding="ascii")
    monkeypatch.setenv("DAGWRIGHT_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.delenv("DAGWRIGHT_OPENSEARCH_URL", raising=False)
    monkeypatch.setattr("sys.argv", arguments)
    assert {"search": search_main, "maritime": maritime_main}[arguments[0]]() == exit_code
    result = capfd.readouterr()
    assert (result.out + result.err).startswith(message_start)


async def test_address_file_of_another_process_is_ignored(tmp_path: Path) -> None:
    local_search = LocalSearch(tmp_path, tmp_path)
    await local_search._daemon.start(["sleep", "60"])
    try:
        (tmp_path / "search.json").write_text('{"address": "http://127.0.0.1:9", "pid": 1}', encoding="ascii")
        assert local_search.find() is None
        await eventually(lambda: local_search._daemon.pid() is not None)
    finally:
        assert await local_search.stop()


def test_invalid_date_is_reported(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["maritime", "load", "--today", "foo"])
    with pytest.raises(SystemExit):
        maritime_main()
    assert "'foo' is not a date; write it like 2026-03-31" in capsys.readouterr().err
