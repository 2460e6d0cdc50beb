"""Check types with mypy, and check that mypy reports the mistakes in `tests/typing/*_errors.py`.

`python scripts/check_types.py PATHS`. In a file `*_errors.py` each line with `# E: TEXT` has an error with that
text, and no other line has an error. All files are checked in one run of mypy, because each run takes half a minute
without the cache of mypy.
"""

import re
import sys
from pathlib import Path

from mypy import api

ROOT = Path(__file__).parents[1]
FILES_WITH_ERRORS = sorted((ROOT / "tests" / "typing").glob("*_errors.py"))

_EXPECTED = re.compile(r"# E: (.+)$")
_ERROR = re.compile(r"^(?P<file>[^:]+):(?P<line>\d+): error: (?P<text>.*)$")


def main() -> int:
    """Print all problems and return the exit code: 0 without problems."""
    files = [path.relative_to(ROOT).as_posix() for path in FILES_WITH_ERRORS]
    output, crash, _ = api.run(["--strict", "--no-pretty", *sys.argv[1:], *files])
    lines = output.splitlines()
    problems = [line for line in lines if line.partition(":")[0] not in files and not line.startswith("Found ")]
    problems += [problem for file in files for problem in differences_from_expected_errors(file, lines)]
    print(crash, *problems, sep="\n") if crash or problems else print("Success: no issues found")
    return 1 if crash or problems else 0


def differences_from_expected_errors(file: str, lines: list[str]) -> list[str]:
    """Return the differences between the errors that a file expects and the errors in the output of mypy."""
    expected_texts = {
        number: match[1]
        for number, line in enumerate((ROOT / file).read_text("utf-8").splitlines(), 1)
        if (match := _EXPECTED.search(line))
    }
    reported_errors = [
        (int(error["line"]), error["text"]) for error in map(_ERROR.match, lines) if error and error["file"] == file
    ]
    unexpected_errors = [
        f"{file}:{number}: error that the file does not expect: {text}"
        for number, text in reported_errors
        if expected_texts.get(number, "\n") not in text
    ]
    missing_lines = sorted(expected_texts.keys() - {number for number, _ in reported_errors})
    return unexpected_errors + [
        f"{file}:{number}: expected, not reported: {expected_texts[number]}" for number in missing_lines
    ]


if __name__ == "__main__":
    sys.exit(main())
