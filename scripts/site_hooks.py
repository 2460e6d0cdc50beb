"""Hooks of the site (`mkdocs.yml`): pages outside of `docs`, links that leave the site, and requests to other hosts.

Pages link to files as on GitHub, by their path in the repository. The hooks add the pages in `_PAGES` to the site under
their own paths, and turn a link to any other file outside of `docs` into a link to the repository.

A page of the site requests nothing from another host: Mermaid comes from a locked package and is part of the site.
"""

import os
import re
from collections.abc import Iterator
from importlib import resources
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

ROOT = Path(__file__).resolve().parents[1]
_MERMAID = "assets/javascripts/mermaid.js"
"""Path of Mermaid in the site. The theme loads Mermaid from another host unless a page has loaded it."""
_REPOSITORY_FACTS_ATTRIBUTE = ' data-md-component="source"'
"""Attribute of the link to the repository; it makes the theme request the number of stars from another host."""
_PAGES = ("CONTRIBUTING.md", "CHANGELOG.md", "apps/*/README.md", "apps/*/docs/*.md")
"""Pages of the site outside of `docs`."""
_FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(\]\()([^)\s#]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside of `docs`, and the script of Mermaid."""
    files.append(File.generated(config, _MERMAID, abs_src_path=str(resources.files("mermaidx") / "assets/mermaid.js")))
    for path in _outside_pages():
        name = path.relative_to(ROOT).as_posix()
        files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def _outside_pages() -> Iterator[Path]:
    for pattern in _PAGES:
        yield from sorted(ROOT.glob(pattern))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite links that are relative to the repository."""
    repository = f"{config.repo_url}/blob/main"
    source = _path_in_repository(page.file.src_uri)

    def rewrite_link(match: re.Match[str]) -> str:
        target = match[2]
        if re.match(r"[a-z]+:", target):
            return match[0]
        path = os.path.normpath(source.parent / target)
        for site_path in (path.removeprefix("docs/"), f"{path.removeprefix('docs/')}/index.md"):
            if files.get_file_from_path(site_path) is not None:
                return match[1] + os.path.relpath(site_path, PurePosixPath(page.file.src_uri).parent)
        # Strict mode reports a link to a file that does not exist.
        return f"{match[1]}{repository}/{path}" if (ROOT / path).exists() else match[0]

    # Code in fences has no links, so links are rewritten only in the text between the fences.
    parts = _FENCE.split(markdown)
    texts = [_LINK.sub(rewrite_link, part) if number % 2 == 0 else part for number, part in enumerate(parts)]
    return "".join(texts)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:  # noqa: ARG001 - MkDocs passes all three
    """Remove requests to other hosts from a page."""
    output = output.replace(_REPOSITORY_FACTS_ATTRIBUTE, "")
    if 'class="mermaid"' not in output:
        return output
    script = get_relative_url(_MERMAID, page.url)
    return output.replace("</head>", f'<script src="{script}"></script></head>', 1)


def _path_in_repository(src_uri: str) -> PurePosixPath:
    return PurePosixPath("docs") / src_uri if (ROOT / "docs" / src_uri).is_file() else PurePosixPath(src_uri)
