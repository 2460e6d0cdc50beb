"""The files of the console: who can read them, how they are cached, and the versions of the included libraries."""

import json
import subprocess
from pathlib import Path

import httpx
import pytest

import dagwright
from dagwright.interfaces.http.api_keys import KeyFile
from dagwright.interfaces.http.callers import KeyScope
from tests.unit.interfaces.http.conftest import OfflineGateway, message_of

CONSOLE_FOLDER = Path(dagwright.__file__).parent / "interfaces" / "console"
ROOT = CONSOLE_FOLDER.parents[2]
VENDOR_FOLDER = CONSOLE_FOLDER / "vendor"
ALL_FILES = [path for path in CONSOLE_FOLDER.rglob("*") if path.is_file()]
CONSOLE_FILES = [path for path in ALL_FILES if not path.is_relative_to(VENDOR_FOLDER)]


async def test_root_redirects_to_the_page(offline_http: httpx.AsyncClient) -> None:
    for path in ("/", "/console"):
        redirect = await offline_http.get(path)
        location = redirect.headers["location"].removeprefix("http://localhost")
        assert (redirect.status_code, location) == (307, "/console/")
    page = await offline_http.get("/console/")
    assert (page.status_code, page.headers["content-type"].partition(";")[0]) == (200, "text/html")
    assert "<title>Dagwright</title>" in page.text


async def test_every_file_is_served_with_a_content_security_policy(http: httpx.AsyncClient) -> None:
    files = [path.relative_to(CONSOLE_FOLDER) for path in ALL_FILES]
    assert len(files) > 10
    for path in [*files, Path("layout/dagre.js")]:
        response = await http.get(f"/console/{path.as_posix()}")
        policy = response.headers["content-security-policy"]
        assert (response.status_code, "default-src 'self'" in policy, "unsafe" in policy) == (200, True, False), path
        assert path.suffix not in (".js", ".mjs") or "javascript" in response.headers["content-type"], path


async def test_unchanged_file_is_not_sent_again_and_a_missing_file_is_an_error(http: httpx.AsyncClient) -> None:
    first_response = await http.get("/console/js/main.js")
    repeated_response = await http.get("/console/js/main.js", headers={"If-None-Match": first_response.headers["etag"]})
    assert first_response.headers["cache-control"] == "no-cache"
    assert (repeated_response.status_code, repeated_response.content) == (304, b"")
    for path in ("/console/none.js", "/console/%2e%2e/app.py", "/console/%2e%2e/gateway/app.py", "/console/js"):
        response = await http.get(path)
        assert (response.status_code, message_of(response) != "") == (404, True), path


async def test_api_needs_a_key_but_the_page_does_not(offline_gateway: OfflineGateway) -> None:
    http, _, context = offline_gateway
    KeyFile(context.settings.api_keys).add("ann", list(KeyScope))
    paths = ("/", "/console/", "/console/js/main.js", "/v1/runs")
    assert [(await http.get(path)).status_code for path in paths] == [307, 200, 200, 401]
    # httpx removes an unescaped `..` from a URL.
    assert (await http.get("/console/%2e%2e/v1/runs")).status_code == 404


def test_page_has_no_inline_script_or_style_and_no_foreign_address() -> None:
    page = (CONSOLE_FOLDER / "index.html").read_text(encoding="utf-8")
    assert [markup for markup in (" style=", "<style") if markup in page] == []
    assert page.count("<script") == page.count('<script type="module" src="js/') == 1
    texts = {path: path.read_text(encoding="utf-8") for path in CONSOLE_FILES if path.suffix}
    assert [path.name for path, text in texts.items() if len(text.splitlines()) > 600] == []
    loaded_texts = {path.name: text for path, text in texts.items() if path.suffix in (".js", ".css", ".html")}
    assert [name for name, text in loaded_texts.items() if "http://" in text.replace("http://www.w3.org/", "")] == []


def test_libraries_have_the_locked_versions_and_licences() -> None:
    packages = json.loads((ROOT / "requirements/console/package-lock.json").read_text(encoding="utf-8"))["packages"]
    versions = {name.removeprefix("node_modules/"): package.get("version") for name, package in packages.items()}
    first_lines = {path.name: path.read_text(encoding="utf-8")[:200] for path in VENDOR_FOLDER.glob("*.mjs")}
    assert f"markdown-it {versions['markdown-it']} " in first_lines["markdown-it.esm.min.mjs"]
    assert f"DOMPurify {versions['dompurify']} " in first_lines["purify.es.mjs"]
    # The console has no command line, so it needs no argparse. The package trusted-types has only types.
    bundled_packages = set(versions) - {"", "argparse", "@types/trusted-types"}
    assert {path.stem for path in (VENDOR_FOLDER / "licenses").iterdir()} == bundled_packages


@pytest.mark.node
def test_libraries_are_the_files_of_the_locked_packages() -> None:
    subprocess.run([ROOT / "scripts" / "vendor-console", "--check"], check=True)
