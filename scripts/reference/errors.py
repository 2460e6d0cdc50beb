"""The tables of exceptions and of error codes, and the codes that the source code uses."""

from dagwright import errors
from dagwright.core.error_codes import ProblemCode
from dagwright.interfaces.cli.exit_codes import CommandErrorCode, ExitCode
from dagwright.interfaces.http.error_codes import ErrorCode
from scripts.reference.markdown import code, field_descriptions, first_paragraph, sentence, table
from scripts.reference.sources import calls_of, texts_of


def exceptions_table() -> str:
    """Return a row for each name of `dagwright.errors`: name, base class and meaning."""
    rows = []
    for name in errors.__all__:
        error_class = getattr(errors, name)
        base = error_class.__mro__[1].__name__ if issubclass(error_class, Exception) else ""
        rows.append((code(name), code(base), first_paragraph(error_class.__doc__)))
    return table(("Exception", "Base", "Meaning"), rows)


def problems_table() -> str:
    """Return a row for each code of a problem of a plan."""
    return table(
        ("Code", "Meaning", "Remedy"), [(code(each), each.meaning, each.remedy) for each in sorted(ProblemCode)]
    )


def http_codes_table() -> str:
    """Return a row for each code of the HTTP API."""
    headings = ("Code", "Status", "Type", "Meaning", "Retry", "Remedy")
    rows = [
        (code(each), str(each.status), code(each.type), each.meaning, _yes_or_no(each.is_retryable), each.remedy)
        for each in sorted(ErrorCode)
    ]
    return table(headings, rows)


def rejections_table() -> str:
    """Return a row for each code of a rejected command."""
    headings = ("Code", "Exit code", "Meaning", "Retry", "Remedy")
    rows = [
        (code(each), str(int(each.exit_code)), each.meaning, _yes_or_no(each.is_retryable), each.remedy)
        for each in sorted(CommandErrorCode)
    ]
    return table(headings, rows)


def exit_codes_table() -> str:
    """Return a row for each exit code of the command line."""
    descriptions = field_descriptions("dagwright/interfaces/cli/exit_codes.py", "ExitCode")
    return table(("Code", "Meaning"), [(str(int(each)), sentence(descriptions[each.name])) for each in ExitCode])


def _yes_or_no(is_retryable: bool) -> str:
    return "yes" if is_retryable else "no"


_REPORTERS = ("Problem", "ReferenceProblem", "ValueProblem", "_report", "report", "report_problem")
"""Functions and classes that report a problem of a plan, with its code as the first argument."""


def used_problem_codes() -> set[str]:
    """Return the codes of all problems of plans that Dagwright's source code reports."""
    return {problem_code for name in _REPORTERS for problem_code in _first_arguments(name)}


def rejection_codes() -> set[str]:
    """Return the codes of rejected turns and requests, which interfaces pass to their clients."""
    classes = ("GoalRejected", "TurnRejected", "TurnRejection")
    return {rejection_code for name in classes for rejection_code in _first_arguments(name)}


def _first_arguments(name: str) -> set[str]:
    codes: set[str] = set()
    for call in calls_of(name):
        arguments = [each.value for each in call.keywords if each.arg == "code"] + call.args[:1]
        codes.update(text for value in arguments for text in texts_of(value))
    return codes
