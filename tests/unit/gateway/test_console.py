"""How the files of the console are served: to everybody, as they are, and kept until they are others."""

from pathlib import Path

import dagwright
from dagwright.interfaces.http.callers import Scope
from dagwright.interfaces.http.keys import KeyFile
from tests.unit.gateway.conftest import Apart

FILES = Path(dagwright.__file__).parent / "interfaces" / "console"
VENDOR = FILES / "vendor"


def own_files() -> list[Path]:
    """Return the files that the project wrote, not those of libraries."""
    return [path for path in FILES.rglob("*") if path.is_file() and not path.is_relative_to(VENDOR)]


async def test_address_of_the_gateway_leads_to_the_page(away: Apart) -> None:
    http, client, _ = away
    answers = [await http.get(path) for path in ("/", "/console")]
    page = await http.get("/console/")
    assert [(each.status_code, each.headers["location"].removeprefix("http://localhost")) for each in answers] == [
        (307, "/console/"),
        (307, "/console/"),
    ]
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    assert "<title>Dagwright</title>" in page.text
    assert not client.asked


async def test_every_file_is_served_and_may_do_nothing_elsewhere(away: Apart) -> None:
    http, _, _ = away
    files = [path.relative_to(FILES) for path in FILES.rglob("*") if path.is_file()]
    assert len(files) > 10
    for path in [*files, Path("layout/dagre.js")]:
        answer = await http.get(f"/console/{path.as_posix()}")
        assert answer.status_code == 200, path
        assert "default-src 'self'" in answer.headers["content-security-policy"], path
        assert "unsafe" not in answer.headers["content-security-policy"]
        if path.suffix in (".js", ".mjs"):
            assert "javascript" in answer.headers["content-type"], path


async def test_file_that_is_known_is_not_sent_again(away: Apart) -> None:
    http, _, _ = away
    first = await http.get("/console/js/main.js")
    again = await http.get("/console/js/main.js", headers={"If-None-Match": first.headers["etag"]})
    assert first.headers["cache-control"] == "no-cache"
    assert (again.status_code, again.content) == (304, b"")


async def test_what_is_no_file_is_told_as_an_error_of_the_api(away: Apart) -> None:
    http, _, _ = away
    for path in ("/console/none.js", "/console/%2e%2e/app.py", "/console/%2e%2e/gateway/app.py", "/console/js"):
        answer = await http.get(path)
        assert answer.status_code == 404, path
        assert answer.json()["error"]["message"]


async def test_page_needs_no_key_and_the_api_does(away: Apart) -> None:
    http, _, desk = away
    KeyFile(desk.settings.api_keys).add("ann", list(Scope))
    told = [(await http.get(path)).status_code for path in ("/", "/console/", "/console/js/main.js", "/v1/runs")]
    assert told == [307, 200, 200, 401]
    # httpx would leave out `..` itself.
    assert (await http.get("/console/%2e%2e/v1/runs")).status_code == 404


def test_page_has_no_script_or_style_of_its_own_and_no_foreign_address() -> None:
    page = (FILES / "index.html").read_text(encoding="utf-8")
    assert " style=" not in page
    assert "<style" not in page
    assert page.count("<script") == page.count('<script type="module" src="js/') == 1
    foreign = [
        path.name
        for path in own_files()
        if path.suffix in (".js", ".css", ".html")
        and "http" + "://" in path.read_text(encoding="utf-8").replace("http://www.w3.org/", "")
    ]
    assert foreign == []


def test_no_file_of_the_page_is_too_long() -> None:
    lengths = {path.name: len(path.read_text(encoding="utf-8").splitlines()) for path in own_files() if path.suffix}
    assert {name: lines for name, lines in lengths.items() if lines > 600} == {}
