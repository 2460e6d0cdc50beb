"""Exact arithmetic with decimals and fractions. A model converts a `query` in words to an expression.

Python's parser reads the expression. The evaluator supports numbers, operators and a few names only, and limits the
size of every value.
"""

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping
from decimal import Context, Decimal, DecimalException
from fractions import Fraction
from typing import Any

from dagwright.tools.builtin.word_problems import evaluate_word_problem, short_text
from dagwright.tools.spec import tool

MAX_EXPRESSION_CHARACTERS = 4_000
"""Maximum length of an expression in characters."""
SIZE_LIMIT_BITS = 12_000
"""Size limit of a numerator or denominator, about 3,600 digits; realistic requests are far smaller."""
SHOWN_DIGITS = 15
"""Significant digits of a result without an exact decimal form: the digits that a float keeps."""

_CALCULATION_CONTEXT = Context(prec=60)
_ROUNDING_CONTEXT = Context(prec=SHOWN_DIGITS)
_SIGNS_TO_PYTHON = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-", "\u00a0": " ", "\u202f": " "})
_TOKEN = re.compile(r"\s+|(?P<number>(?:\d+(?:_\d+)*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>\w+)|[-+*/%^(),]")


def _schema_requiring(name: str) -> dict[str, Any]:
    return {"required": [name], "properties": {name: {"not": {"type": "null"}}}}


@tool(effects="pure", schema={"oneOf": [_schema_requiring("expression"), _schema_requiring("query")]})
def calculator(expression: str | float | None = None, query: str | float | None = None) -> int | float:
    """Calculate exactly and return a number.

    Supports + - * / // % ** (or ^), parentheses, abs, ceil, floor, max, min, round, sqrt, pi and e. Give either
    `expression` or `query`.

    Args:
        expression: arithmetic expression, such as `12 * (3 + 4) / 5`
        query: an expression, or a calculation in words, such as `the difference between 69 and 56`, which a model
            converts to an expression
    """
    if (expression is None) == (query is None):
        raise ValueError("Give the calculator either an expression or a query")
    if query is None:
        return number_of(evaluate(_text_of(expression)))
    text = _text_of(query)
    try:
        return number_of(_evaluate_exactly(text))
    except _NotArithmetic as error:
        reason = str(error)
    if not text.strip():
        raise ValueError(reason)
    return number_of(evaluate_word_problem(text, evaluate, reason=reason))


class _NotArithmetic(Exception):
    """The text is not an expression; the message is the reason."""


def evaluate(text: str) -> Fraction:
    """Return the exact value of an expression.

    Raises:
        ValueError: the text is not arithmetic, or a value is not defined or too large.
    """
    try:
        return _evaluate_exactly(text)
    except _NotArithmetic as error:
        raise ValueError(str(error)) from None


def _text_of(value: str | float | None) -> str:
    return value if isinstance(value, str) else repr(value)


def _evaluate_exactly(text: str) -> Fraction:
    python_text = _python_notation(text)
    try:
        expression = ast.parse(python_text, mode="eval").body
        value = _Evaluator(python_text).value(expression)
    except ZeroDivisionError:
        raise ValueError(f"{short_text(text)} divides by zero") from None
    except (SyntaxError, TypeError):
        raise _not_arithmetic_error(text, "invalid syntax") from None
    except (RecursionError, MemoryError):
        raise ValueError(f"{short_text(text)} is nested too deep to calculate") from None
    if not isinstance(value, Fraction):
        raise _not_arithmetic_error(text, "it is not a single number")
    return value


def number_of(value: Fraction) -> int | float:
    """Convert `value` to a JSON number: exact if possible, else rounded to 15 digits.

    Raises:
        ValueError: the value is too large or too small for a number with a decimal point.
    """
    if value.denominator == 1:
        return value.numerator
    try:
        nearest_float = float(value)
        if Fraction(repr(nearest_float)) == value:
            return nearest_float
        rounded_float = float(_ROUNDING_CONTEXT.divide(Decimal(value.numerator), Decimal(value.denominator)))
    except OverflowError:
        rounded_float = math.inf
    if rounded_float == 0 or math.isinf(rounded_float):
        raise ValueError("The result is too large or too small for a number with a decimal point")
    return rounded_float


def _python_notation(text: str) -> str:
    """Return `text` in Python's notation, after checking that every token is a number, an operator or a known name."""
    if len(text) > MAX_EXPRESSION_CHARACTERS:
        raise _NotArithmetic(
            f"The expression has {len(text):,} characters, over the limit of {MAX_EXPRESSION_CHARACTERS:,}"
        )
    python_text = text.translate(_SIGNS_TO_PYTHON).strip()
    position, last_operand = 0, ""
    while position < len(python_text):
        match = _TOKEN.match(python_text, position)
        if match is None:
            raise _not_arithmetic_error(text, f"unexpected {python_text[position]!r}")
        if match["name"] and match["name"] not in _NAMES.keys() | _FUNCTIONS.keys():
            raise _not_arithmetic_error(text, f"unknown name {match['name'][:30]!r}")
        if last_operand and (match["name"] or match["number"]):
            raise _not_arithmetic_error(text, f"no operator between {last_operand!r} and {match[0]!r}")
        last_operand = (match["name"] or match["number"] or "") if match[0].strip() else last_operand
        position = match.end()
    if not python_text:
        raise _not_arithmetic_error(text, "it is empty")
    # Python's ^ is another operation with another precedence, so it is replaced before parsing.
    return python_text.replace("^", "**")


class _Evaluator:
    """Evaluates a parsed expression with fractions. Literals are read from the text: floats would be rounded."""

    def __init__(self, text: str) -> None:
        self._text = text

    def value(self, node: ast.expr) -> Any:
        """Return the value of a node.

        Raises:
            TypeError: the node is not arithmetic, or a function does not take these arguments.
        """
        match node:
            case ast.Constant():
                return self._literal(node)
            case ast.Name(id=name):
                return _NAMES.get(name)
            case ast.UnaryOp(op=op, operand=operand) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](self.value(operand))
            case ast.BinOp(op=op, left=left, right=right) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](self.value(left), self.value(right))
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
                return _FUNCTIONS[name](*map(self.value, arguments))
        raise TypeError(f"{type(node).__name__} is not arithmetic")

    def _literal(self, node: ast.Constant) -> Fraction:
        number = Decimal(ast.get_source_segment(self._text, node) or "")
        # A decimal digit has 3.3 bits, so a number with at most this many digits is within the size limit.
        if abs(number.adjusted()) > SIZE_LIMIT_BITS // 4:
            raise _too_large_error()
        return Fraction(number)


def _reject_large_results(operation: Callable[..., Any]) -> Callable[..., Fraction]:
    """Wrap `operation` on fractions, rejecting results that are too large."""

    def calculate(*operands: Fraction) -> Fraction:
        result = Fraction(operation(*operands))
        if max(result.numerator.bit_length(), result.denominator.bit_length()) > SIZE_LIMIT_BITS:
            raise _too_large_error()
        return result

    return calculate


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator == 1:
        bits = max(base.numerator.bit_length(), base.denominator.bit_length())
        if base not in (-1, 0, 1) and (bits - 1) * abs(exponent) > SIZE_LIMIT_BITS:
            raise _too_large_error()
        return Fraction(base**exponent.numerator)
    if base < 0:
        raise ValueError("A negative number has no power with a fractional exponent")
    if exponent == Fraction(1, 2):
        return _square_root(base)
    if base == 0:
        return _zero_power(exponent)
    if abs(exponent) * max(base.numerator.bit_length(), base.denominator.bit_length()) > SIZE_LIMIT_BITS:
        raise _too_large_error()
    try:
        return Fraction(_CALCULATION_CONTEXT.power(_decimal(base), _decimal(exponent)))
    except DecimalException:
        raise _too_large_error() from None


def _zero_power(exponent: Fraction) -> Fraction:
    if exponent < 0:
        raise ZeroDivisionError
    return Fraction(0)


def _square_root(value: Fraction) -> Fraction:
    if value < 0:
        raise ValueError("A negative number has no square root")
    numerator_root, denominator_root = math.isqrt(value.numerator), math.isqrt(value.denominator)
    if numerator_root * numerator_root == value.numerator and denominator_root * denominator_root == value.denominator:
        return Fraction(numerator_root, denominator_root)
    return Fraction(_CALCULATION_CONTEXT.sqrt(_decimal(value)))


def _round(value: Fraction, digits: Fraction = Fraction(0)) -> Fraction:
    """Round half away from zero, as people do."""
    if digits.denominator != 1 or abs(digits) > SIZE_LIMIT_BITS // 4:
        raise ValueError("round takes a number of digits")
    scale = Fraction(10) ** int(digits)
    scaled_value = math.floor(abs(value) * scale + Fraction(1, 2))
    return Fraction(scaled_value if value >= 0 else -scaled_value) / scale


def _decimal(value: Fraction) -> Decimal:
    return _CALCULATION_CONTEXT.divide(Decimal(value.numerator), Decimal(value.denominator))


def _not_arithmetic_error(text: str, reason: str) -> _NotArithmetic:
    return _NotArithmetic(
        f"{short_text(text)} is not arithmetic: {reason}; write an expression such as 12 * (3 + 4) / 5"
    )


def _too_large_error() -> ValueError:
    return ValueError("A number in the expression is too large or too small to calculate exactly")


_NAMES = {
    "pi": Fraction("3.14159265358979323846264338327950288419716939937510"),
    "e": Fraction("2.71828182845904523536028747135266249775724709369996"),
}
_OPERATORS: Mapping[type[ast.AST], Callable[..., Fraction]] = {
    ast.Add: _reject_large_results(operator.add),
    ast.Sub: _reject_large_results(operator.sub),
    ast.Mult: _reject_large_results(operator.mul),
    ast.Div: _reject_large_results(operator.truediv),
    ast.FloorDiv: _reject_large_results(operator.floordiv),
    ast.Mod: _reject_large_results(operator.mod),
    ast.Pow: _reject_large_results(_power),
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}
_FUNCTIONS: Mapping[str, Callable[..., Fraction]] = {
    "abs": _reject_large_results(abs),
    "ceil": _reject_large_results(math.ceil),
    "floor": _reject_large_results(math.floor),
    "max": _reject_large_results(max),
    "min": _reject_large_results(min),
    "round": _reject_large_results(_round),
    "sqrt": _reject_large_results(_square_root),
}
