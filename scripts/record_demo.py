"""Record `make demo` as docs/run.svg: lines of output appear at the times of a real run, with long pauses shortened.

The colours follow the scheme that the reader prefers, light or dark.

`python scripts/record_demo.py [FILE]`
"""

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from os import environ
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).parents[1]
FIRST_LINE_PREFIX = "$ dagwright run"
LAST_LINE_PREFIX = "Each lamp"
PAUSES_S = {True: (1.0, 1.5), False: (0.0, 2.0)}
"""Whether a line is a command -> the shortest and longest pause before the line."""
COLUMN_PX = 8.4
ROW_PX = 20
MARGIN_PX = 20
TITLE_BAR_PX = 36

_COLOURS = (
    ("command", re.compile(r"^\$ (?!kill).*")),
    ("kill", re.compile(r"^\$ kill.*|its worker died or hung")),
    ("completed", re.compile(r"\bcompleted\b|^Each lamp.*")),
    ("running", re.compile(r"\brunning\b")),
)

_PICTURE = """\
<svg role="img" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<title>An order is run, its process is killed with kill -9, and the same command runs the rest of the order.</title>
<style>
text {{ font: 14px ui-monospace, Menlo, Consolas, monospace; fill: #c9d1d9; white-space: pre; }}
.command {{ fill: #ffffff; font-weight: bold; }}
.kill {{ fill: #ff7b72; font-weight: bold; }}
.completed {{ fill: #7ee787; }}
.running {{ fill: #e3b341; }}
.window {{ fill: #161b22; }}
@media (prefers-color-scheme: light) {{
  text {{ fill: #1f2328; }}
  .command {{ fill: #000000; }}
  .kill {{ fill: #cf222e; }}
  .completed {{ fill: #116329; }}
  .running {{ fill: #7d4e00; }}
  .window {{ fill: #f6f8fa; stroke: #d0d7de; }}
}}
.line {{ animation: appear 10ms both; }}
@keyframes appear {{ from {{ opacity: 0; }} to {{ opacity: 1; }} }}
@media (prefers-reduced-motion: reduce) {{ .line {{ animation: none; }} }}
</style>
<rect class="window" x="0.5" y="0.5" width="{inner_width}" height="{inner_height}" rx="8"/>
<circle cx="22" cy="20" r="6" fill="#ff5f57"/>
<circle cx="42" cy="20" r="6" fill="#febc2e"/>
<circle cx="62" cy="20" r="6" fill="#28c840"/>
{lines}
</svg>
"""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the demo; `appears_at_s` is the time at which the recording shows it."""

    text: str
    appears_at_s: float


def record_lines(state_dir: Path) -> Iterator[Line]:
    """Run the demo and yield its lines from the first command to the last message, without links."""
    command = [sys.executable, "-m", "examples.order_demo"]
    variables = {**environ, "DAGWRIGHT_STATE_DIR": str(state_dir), "NO_COLOR": "1"}
    with subprocess.Popen(command, cwd=ROOT, env=variables, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        previous_line_at = time.monotonic()
        appears_at_s = 0.0
        is_recording = False
        for line in process.stdout:
            line_at = time.monotonic()
            min_pause_s, max_pause_s = PAUSES_S[line.startswith("$")]
            appears_at_s += max(min_pause_s, min(line_at - previous_line_at, max_pause_s)) if is_recording else 0
            previous_line_at = line_at
            is_recording = is_recording or line.startswith(FIRST_LINE_PREFIX)
            if is_recording and not line.startswith("Temporal UI"):
                yield Line(line.rstrip(), appears_at_s)
            if line.startswith(LAST_LINE_PREFIX):
                is_recording = False
    if process.returncode:
        raise SystemExit(f"the demo ended with exit code {process.returncode}")


def draw(lines: Iterable[Line]) -> str:
    """Return the recording as an SVG that shows one line after the other."""
    all_lines = [*lines]
    width = round(max(len(line.text) for line in all_lines) * COLUMN_PX + 2 * MARGIN_PX)
    height = TITLE_BAR_PX + len(all_lines) * ROW_PX + MARGIN_PX
    drawn_lines = [
        _draw_line(line, y=TITLE_BAR_PX + (number + 1) * ROW_PX) for number, line in enumerate(all_lines) if line.text
    ]
    sizes = {"width": width, "height": height, "inner_width": width - 1, "inner_height": height - 1}
    return _PICTURE.format(**sizes, lines="\n".join(drawn_lines))


def _draw_line(line: Line, *, y: int) -> str:
    style = f"animation-delay: {line.appears_at_s:.1f}s"
    return f'<text class="line" x="{MARGIN_PX}" y="{y}" style="{style}">{_add_colour(line.text)}</text>'


def _add_colour(text: str) -> str:
    for name, pattern in _COLOURS:
        if (match := pattern.search(text)) is not None:
            prefix, matched_text, suffix = text[: match.start()], match[0], text[match.end() :]
            return f'{escape(prefix)}<tspan class="{name}">{escape(matched_text)}</tspan>{escape(suffix)}'
    return escape(text)


def main() -> None:
    """Record the demo."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs/run.svg"
    with tempfile.TemporaryDirectory() as folder:
        try:
            picture = draw(record_lines(Path(folder)))
        finally:
            stop_command = [sys.executable, "-P", "-m", "dagwright", "down"]
            subprocess.run(stop_command, cwd=folder, env={**environ, "DAGWRIGHT_STATE_DIR": folder}, check=True)
    target.write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
