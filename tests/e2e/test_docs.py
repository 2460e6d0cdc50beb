"""Every command and snippet of the documentation runs, and its statements about the code are true."""

import json
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import pytest

from dagwright.core.errors import PlanInvalid
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.dialects.reading import inline_files, read_plan_file
from dagwright.plans.preparation import check_plan
from dagwright.protocol.run_input import run_input_from_json
from dagwright.settings import Settings
from dagwright.tools import load_tools
from dagwright.toolset.toolset import load_toolset
from dagwright_maritime.settings import MaritimeSettings
from tests.support.docs import (
    COMMAND_LANGUAGES,
    FILE_LANGUAGES,
    OTHER_LANGUAGES,
    ROOT,
    Block,
    Clone,
    anchors_of,
    blocks_of,
    documentation_pages,
    environment,
    links_of,
    normalize,
    prints_expected_output,
    state_folder_of,
)
from tests.support.programs import command_folder
from tests.support.server import LiveServer, live_server

PAGES = {page.relative_to(ROOT).as_posix(): page for page in documentation_pages()}
BLOCKS = [block for page in PAGES.values() for block in blocks_of(page)]
PAGES_WITH_COMMANDS = sorted(
    {block.page for block in BLOCKS if block.language in COMMAND_LANGUAGES and block.is_runnable}
)
TUTORIAL = [
    "docs/tutorial/index.md",
    *(page for page in PAGES if page.startswith("docs/tutorial/") and "index" not in page),
]
"""Pages of the tutorial, in order: each page uses the files of the previous page."""
FOREIGN_COMMANDS = re.compile(r"`(?:dagwright temporal|temporal|docker compose up) [^`\n]+`")
"""Inline commands of programs other than Dagwright. Their options are not checked."""
COMMAND_LINE = re.compile(r"^(\$ )?(dagwright|python|pip|make|docker|export|curl) ", re.MULTILINE)
"""A command that readers could run, at the start of a line in a text block."""
MAX_DECISION_WORDS = 750
"""A page and a half in print."""
COLOUR_SCHEME_ANCHORS = frozenset({"only-light", "only-dark"})
"""Anchors that make the site show a picture in only one colour scheme."""
MAX_PAGE_WORDS = 1_200
"""Five minutes of reading. Words in code blocks do not count."""
DECISIONS = sorted((ROOT / "docs/decisions").glob("[0-9]*.md"))


def blocks_of_language(*languages: str) -> list[Block]:
    return [block for block in BLOCKS if block.language in languages]


@pytest.fixture(scope="module")
async def docs_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LiveServer]:
    """A server for this module only, because workers of other tests publish a payload store on the shared server."""
    async with live_server(tmp_path_factory.mktemp("other")) as server:
        yield server


@pytest.fixture
async def clone(tmp_path: Path, docs_server: LiveServer) -> AsyncIterator[Clone]:
    """A clone with a running server, so that no command has to start and stop one."""
    folder = tmp_path / "clone"
    folder.mkdir()
    clone = Clone(folder, address=docs_server.address, program_folder=command_folder())
    async with live_server(state_folder_of(folder)) as clone_server:
        yield clone
        clone.close()
        await clone_server.kill_all()


@pytest.mark.server
@pytest.mark.parametrize(
    "page",
    # The tutorial has its own test, because its pages depend on each other.
    [
        pytest.param(page, marks=pytest.mark.slow if page in ("README.md", "docs/contributing/testing.md") else ())
        for page in PAGES_WITH_COMMANDS
        if page not in TUTORIAL
    ],
)
def test_commands_of_a_page_run_in_order(page: str, clone: Clone) -> None:
    _run_commands(page, clone)


@pytest.mark.server
def test_commands_of_the_tutorial_run_in_order(clone: Clone) -> None:
    for page in TUTORIAL:
        _run_commands(page, clone)


def _run_commands(page: str, clone: Clone) -> None:
    for block in blocks_of(PAGES[page]):
        clone.save(block)
        if block.language not in COMMAND_LANGUAGES or not block.is_runnable:
            continue
        result = clone.run(block)
        assert result.exit_code == block.exit_code, f"{block}\n{result.output}"
        if block.language == "console":
            assert prints_expected_output(block, result.output), f"{block}\n{result.output}"


@pytest.mark.parametrize("page", sorted({block.page for block in blocks_of_language("yaml", "json")}))
def test_plans_of_a_page_are_valid_unless_marked_invalid(page: str, tmp_path: Path) -> None:
    plans = [block for block in blocks_of(PAGES[page]) if block.language in ("yaml", "json")]
    files = [tmp_path / (block.file_name or f"{block.line}.{block.language}") for block in plans]
    for file, block in zip(files, plans, strict=True):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(block.text, encoding="utf-8")
    tools = load_toolset(Settings(state_dir=state_folder_of(tmp_path)), _save_tools(page, tmp_path)).declarations()
    for file, block in zip(files, plans, strict=True):
        problems = _problems(file, tools)
        assert bool(problems) == ("invalid" in block.notes), f"{block}: {problems}"


def _problems(file: Path, tools: Mapping[str, ToolDeclaration]) -> list[str]:
    try:
        check_plan(inline_files(read_plan_file(file), base=file.parent), tools)
    except PlanInvalid as invalid:
        return [str(problem) for problem in invalid.problems]
    return []


def _save_tools(page: str, folder: Path) -> list[str]:
    tool_paths: dict[str, None] = {}
    for page_name in TUTORIAL if page in TUTORIAL else [page]:
        for block in blocks_of(PAGES[page_name]):
            if block.language == "python" and block.file_name is not None and not _is_program(block):
                (folder / block.file_name).write_text(block.text, encoding="utf-8")
                tool_paths[str(folder / block.file_name)] = None
    return [*tool_paths]


def _is_program(block: Block) -> bool:
    """Return whether a command of the page runs the block as a program."""
    commands = [block.text for block in blocks_of(PAGES[block.page]) if block.language in COMMAND_LANGUAGES]
    return block.file_name is not None and any(f"python {block.file_name}" in text for text in commands)


def test_run_input_on_the_deployment_page_is_valid() -> None:
    (text,) = (
        block.text for block in blocks_of(PAGES["docs/tutorial/6-deploy.md"]) if "cat > lamps.json" in block.text
    )
    run_input = run_input_from_json(json.loads(text.partition("'END'\n")[2].removesuffix("END\n")))
    checked = check_plan(run_input.plan, load_toolset(Settings(), []).declarations())
    assert (checked.dialect, run_input.inputs, run_input.deadline_s) == ("plan", {"count": 4}, 300.0)


@pytest.mark.parametrize("block", blocks_of_language("python"), ids=str)
def test_each_python_snippet_can_be_compiled_loaded_or_run(block: Block, tmp_path: Path) -> None:
    path = tmp_path / "snippet.py"
    path.write_text(block.text, encoding="utf-8")
    if _is_program(block):
        compile(block.text, str(block), "exec")
    elif block.file_name is not None and "plugins" not in block.text:
        assert load_tools([str(path)]).declarations()
    else:
        runpy.run_path(str(path))


def test_every_block_has_a_language_that_a_test_covers() -> None:
    unknown_blocks = [
        str(block) for block in BLOCKS if block.language not in COMMAND_LANGUAGES | FILE_LANGUAGES | OTHER_LANGUAGES
    ]
    assert unknown_blocks == []


def test_failing_block_has_a_single_command() -> None:
    # The exit code of a block is the exit code of its last command.
    failing_blocks = [block for block in BLOCKS if block.exit_code]
    assert all(len(block.text.splitlines()) == 1 or block.text.count("$ ") == 1 for block in failing_blocks)


def test_few_blocks_are_not_run_and_each_has_a_reason() -> None:
    skipped_blocks = [block for block in BLOCKS if not block.is_runnable]
    assert all(block.notes["not run"] for block in skipped_blocks)
    assert len([block for block in skipped_blocks if block.language in COMMAND_LANGUAGES]) <= 4
    # Commands in text blocks are never run, so such a block must be marked as not run.
    command_blocks = [block for block in blocks_of_language("text") if COMMAND_LINE.search(block.text)]
    assert [str(block) for block in command_blocks if block.is_runnable] == []


def test_commands_and_options_in_text_blocks_exist() -> None:
    lines = [
        line
        for block in blocks_of_language("text")
        for line in re.findall(r"^(?:\$ )?dagwright (.*)$", block.text, re.M)
    ]
    commands = [shlex.split(line, comments=True) for line in lines]
    assert len(commands) > 15
    assert [command for command in commands if command[0] not in _known_commands() | {"temporal"}] == []
    options = {
        word for command in commands for word in command[1:] if word.startswith("--") and command[0] != "temporal"
    }
    assert sorted(options - _known_options()) == []


SKIPPED_COMMAND_BLOCKS = [block for block in BLOCKS if not block.is_runnable and block.language in COMMAND_LANGUAGES]


@pytest.mark.parametrize("block", SKIPPED_COMMAND_BLOCKS, ids=str)
def test_make_targets_and_options_of_blocks_that_are_not_run_exist(block: Block) -> None:
    for line in block.text.splitlines():
        words = shlex.split(line.removeprefix("$ "), comments=True)
        if words[:1] == ["make"]:
            subprocess.run(["make", "--dry-run", *words[1:]], cwd=ROOT, capture_output=True, check=True)
        elif words[:2] == ["docker", "compose"]:
            assert words[2] in {"up", "down", "ps", "logs"}
            assert (ROOT / "docker-compose.yml").is_file()
        elif words[:1] == ["dagwright"]:
            assert words[1] in _known_commands()
            assert {word for word in words if word.startswith("--")} <= _known_options()
        else:
            assert not words, f"{block}: no check for {line!r}"


def test_every_option_named_on_a_page_exists() -> None:
    known_options = _known_options()
    for name, page in PAGES.items():
        text = FOREIGN_COMMANDS.sub("", _without_blocks(page))
        assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)) <= known_options, name


def test_files_and_options_in_commands_of_the_examples_exist() -> None:
    known_options = _known_options()
    commands = [
        match[1].split()
        for page in sorted(ROOT.glob("examples/*/README.md"))
        for match in re.finditer(r"(?:^|`)python starter\.py ([^`\n]+)", page.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert commands
    words = [word for command in commands for word in command]
    assert [word for word in words if word.startswith("examples/") and not (ROOT / word).is_file()] == []
    assert [word for word in words if word.startswith("-") and word not in known_options] == []


@cache
def _known_commands() -> set[str]:
    command = [sys.executable, "starter.py", "--help"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return set(re.findall(r"^  ([a-z-]+) ", result.stdout, re.MULTILINE))


@cache
def _known_options() -> set[str]:
    code = "".join(
        path.read_text(encoding="utf-8")
        for path in [
            *(
                ROOT / name
                for name in (
                    "worker.py",
                    "scripts/setup",
                    "Makefile",
                    "apps/maritime/dagwright_maritime/__main__.py",
                    "apps/onboarding/dagwright_onboarding/commands.py",
                )
            ),
            *ROOT.glob("dagwright/interfaces/cli/*.py"),
        ]
    )
    return set(re.findall(r"--[a-z][a-z-]+", code)) | {"--task-queue"}


def _without_blocks(page: Path) -> str:
    return re.sub(r"^```.*?^```$|<!--.*?-->", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def test_every_variable_of_the_page_on_settings_is_a_setting() -> None:
    rows = re.findall(
        r"^\| (`[A-Z]+_.*?`) \|", PAGES["docs/reference/settings.md"].read_text(encoding="utf-8"), re.MULTILINE
    )
    documented_names = {name.strip("`") for row in rows for name in row.split(", ")}
    fields = Settings.model_fields | MaritimeSettings.model_fields
    setting_names = {field.validation_alias or f"DAGWRIGHT_{name}".upper() for name, field in fields.items()}
    secret_variables = {f"DAGWRIGHT_SECRET_NAME{end}" for end in ("", "_TOOLS", "_HOSTS")}
    assert documented_names - setting_names == secret_variables


@pytest.mark.parametrize("name", sorted(PAGES))
def test_every_link_within_the_repository_has_a_target(name: str) -> None:
    page = PAGES[name]
    for link in links_of(page):
        if link.startswith("https://"):
            continue
        target, _, anchor = link.partition("#")
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), f"{name}: {link}"
        is_picture = path.suffix == ".png"
        assert not anchor or (anchor in COLOUR_SCHEME_ANCHORS if is_picture else anchor in anchors_of(path)), (
            f"{name}: {link}"
        )


@pytest.mark.server
def test_recording_in_the_readme_matches_a_real_run(tmp_path: Path) -> None:
    target = tmp_path / "run.svg"
    command = ["python", "scripts/record_demo.py", str(target)]
    subprocess.run(command, cwd=ROOT, env=environment(tmp_path, command_folder()), check=True)
    assert _lines_of(target) == _lines_of(ROOT / "docs/run.svg")


def _lines_of(recording: Path) -> list[str]:
    texts = ElementTree.parse(recording).getroot().iter("{http://www.w3.org/2000/svg}text")
    return normalize("\n".join("".join(text.itertext()) for text in texts)).splitlines()


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem)
def test_a_decision_is_short_and_has_all_four_parts(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    parts = ["Question", "Chosen", "Rejected", "What would prove us wrong"]
    assert re.findall(rf"^\*\*({'|'.join(parts)})\.\*\*", text, re.MULTILINE) == parts
    assert len(text.split()) <= MAX_DECISION_WORDS


def test_no_inline_code_has_an_escaped_pipe() -> None:
    """The site would show the backslash."""
    code_spans = [
        (name, span) for name, page in PAGES.items() for span in re.findall(r"`[^`\n]+`", _without_blocks(page))
    ]
    assert [(name, span) for name, span in code_spans if r"\|" in span] == []


def test_guides_and_pages_on_deployment_are_short() -> None:
    checked_pages = {name: page for name, page in PAGES.items() if name.startswith(("docs/guides/", "docs/deploy/"))}
    word_counts = {name: len(re.findall(r"\S*\w\S*", _without_blocks(page))) for name, page in checked_pages.items()}
    assert {name: count for name, count in word_counts.items() if count > MAX_PAGE_WORDS} == {}


def test_decisions_are_numbered_without_a_gap() -> None:
    assert [int(path.name[:4]) for path in DECISIONS] == list(range(1, len(DECISIONS) + 1))
    assert [
        int(re.match(r"# (\d+)\. ", path.read_text(encoding="utf-8"))[1])  # type: ignore[index] # no match fails too
        for path in DECISIONS
    ] == list(range(1, len(DECISIONS) + 1))


def test_the_glossary_is_a_short_sorted_list_with_each_kind_of_effects() -> None:
    glossary = PAGES["docs/glossary.md"].read_text(encoding="utf-8")
    terms = re.findall(r"^\| ([\w -]+) \| [A-Z]", glossary, re.MULTILINE)
    assert terms == sorted(terms)
    assert 20 < len(terms) <= 30
    assert [word for word in Effects if f"`{word}`" not in glossary] == []


def test_changelog_starts_with_unreleased_changes() -> None:
    headings = re.findall(r"^## (.*)$", PAGES["CHANGELOG.md"].read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[0] == "Unreleased"
