"""Parser of conditions: finds the values that a CEL text reads, and compiles the program that is executed.

Each path that a condition reads (`fetch.result.rows[0].n`) becomes a variable in the executed program, and so do
`size(path)` and `has(path)`. The library copies a variable each time the program names it, so a program must receive
only the parts that it reads and not the whole results around them.

The package of the CEL library imports an interactive shell (prompt_toolkit and more). The import takes 0.15 s, longer
than most commands. Therefore only this module imports the package, when it compiles the first condition.

This module must not import the scheduler. The module evaluates no conditions, only the string literals in conditions.
"""

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    import cel


class BadCondition(ValueError):
    """A condition is invalid.

    Args:
        hint: correction, if known.
        unknown_node: the name that is not the ID of a node, if that is the problem.
    """

    def __init__(self, message: str, *, hint: str | None = None, unknown_node: str | None = None) -> None:
        self.hint = hint
        self.unknown_node = unknown_node
        super().__init__(message)


@lru_cache(maxsize=4096)
def compile_cel(text: str) -> "cel.Program":
    """Compile a CEL expression.

    Raises:
        ValueError: the text is not valid CEL.
        RecursionError: the expression is nested too deep.
    """
    import cel  # noqa: PLC0415 - see the module docstring

    return cel.compile(text)


Source = Literal["nodes", "inputs", "item", "index"]
Steps = tuple[str | int, ...]

_TOKEN = re.compile(
    r"""
    (?P<space> \s+ | //[^\n]* )
  | (?P<string>
        (?:[rR][bB]?|[bB][rR]) (?: \"{3}.*?\"{3} | '{3}.*?'{3} | "[^"]*" | '[^']*' )
      | [bB]? (?: \"{3}(?:\\.|[^\\])*?\"{3} | '{3}(?:\\.|[^\\])*?'{3} | "(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*' )
    )
  | (?P<name> [A-Za-z_]\w* )
  | (?P<number> [0-9][\w.]* )
  | (?P<sign> . )
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_KEYWORDS = frozenset({"true", "false", "null", "in"})
_RESERVED_NAMES = frozenset({"inputs", "item", "index"})
_MACROS = frozenset({"all", "exists", "exists_one", "existsOne", "map", "filter"})
_UNSUPPORTED_MACROS = frozenset({"map", "filter"})
_COMPARISON_DELIMITERS = frozenset("()[]{},&|?:")
"""Signs that can delimit a comparison. Any other sign belongs to an operand, such as `+` in `a + path == "x"`."""
_MAX_PATTERN_CHARACTERS = 200
"""Longest pattern in `matches()`; the library compiles it again for every evaluation."""


class Token(NamedTuple):
    """A word, text, number or sign of a condition, and its position."""

    kind: str
    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Read:
    """A read of a value in a condition.

    Args:
        variable: name of the variable in the program.
        source: where the path starts.
        node_id: id of the node if the path starts at `nodes`; otherwise empty.
        steps: object keys and list indices of the path.
        aspect: whether the value itself, its size, or its presence is read.
        is_in_loop: whether the read is inside a comprehension, so that the value is read for every element.
        compared_texts: literal texts with which the value is compared by `==`, `!=` or `in`.
    """

    variable: str
    source: Source
    node_id: str
    steps: Steps
    aspect: Literal["value", "size", "presence"]
    is_in_loop: bool
    compared_texts: tuple[str, ...] = ()


@dataclass(slots=True)
class ConditionAnalysis:
    """Result of parsing a condition.

    Args:
        program: the text with a variable in place of every path.
        reads: reads in the order of their position.
        names: every name in the text that could be a variable; compared with the variables that the library finds.
        loop_count: number of comprehensions.
        element_read_count: number of times that a comprehension reads its element.
        signs: the signs of the text, to estimate the cost of an evaluation.
        patterns: the patterns of `matches()`.
    """

    program: str = ""
    reads: list[Read] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    loop_count: int = 0
    element_read_count: int = 0
    signs: str = ""
    patterns: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ParsedCondition:
    """A parsed condition.

    Args:
        text: as written.
        nodes: ids of the nodes whose results it reads, in the order of their first mention.
        uses_item: whether it reads `item` or `index`, so that it is evaluated for each item of a `for_each`.
        analysis: the reads, and the program that is executed.
    """

    text: str
    nodes: tuple[str, ...]
    uses_item: bool
    analysis: ConditionAnalysis = field(repr=False)


class _ConditionParser:
    """Parser of the tokens of one condition from left to right."""

    def __init__(self, text: str, is_node: Callable[[str], bool]) -> None:
        self.text = text
        self.is_node = is_node
        all_tokens = (Token(match.lastgroup or "", match[0], *match.span()) for match in _TOKEN.finditer(text))
        self.tokens = [token for token in all_tokens if token.kind != "space"]
        self.analysis = ConditionAnalysis(signs="".join(token.text for token in self.tokens if token.kind == "sign"))
        self.variable_prefix = "_p"
        while any(token.text.startswith(self.variable_prefix) for token in self.tokens):
            self.variable_prefix += "_"
        self.pieces: list[str] = []
        self.copied_end = 0
        # The comprehension around the current token: the name of its element and the index of its closing token.
        self.element, self.loop_end = "", -1

    def parse(self) -> ConditionAnalysis:
        index = 0
        while index < len(self.tokens):
            token = self.tokens[index]
            follows_dot = self._is_token(index - 1, ".")
            if token.kind != "name":
                index += 1
            elif self._is_token(index + 1, "("):
                if token.text == "matches":
                    self.analysis.patterns.append(self._parse_pattern(index))
                index = self._parse_comprehension(index) if follows_dot and token.text in _MACROS else index + 1
            elif follows_dot or token.text in _KEYWORDS:
                index += 1
            else:
                index = self._parse_name(index)
        self.pieces.append(self.text[self.copied_end :])
        self.analysis.program = "".join(self.pieces)
        return self.analysis

    def _parse_comprehension(self, index: int) -> int:
        macro = self.tokens[index].text
        if macro in _UNSUPPORTED_MACROS:
            raise ValueError(f"{macro}() cannot be used in a condition; use all(), exists() or exists_one()")
        if index < self.loop_end:
            raise ValueError(f"{macro}() cannot be inside another comprehension")
        if len(self.tokens) <= index + 3 or self.tokens[index + 2].kind != "name":
            return index + 1
        self.element, self.loop_end = self.tokens[index + 2].text, self._closing_index(index + 1)
        self.analysis.loop_count += 1
        self.analysis.names.add(self.element)
        return index + 3

    def _closing_index(self, start: int) -> int:
        depth = 0
        for index in range(start, len(self.tokens)):
            token = self.tokens[index]
            if token.kind == "sign":
                depth += (token.text in "([{") - (token.text in ")]}")
            if not depth:
                return index
        return len(self.tokens)

    def _parse_pattern(self, index: int) -> str:
        closing_index = self._closing_index(index + 1)
        pattern = self.tokens[closing_index - 1]
        if pattern.kind != "string" or self.tokens[closing_index - 2].text not in ("(", ","):
            raise ValueError("the pattern of matches() must be a text in quotes")
        if "{" in pattern.text or len(pattern.text) > _MAX_PATTERN_CHARACTERS:
            # A repeat count multiplies the size of a compiled pattern: (\w{100}){2} takes 90 ms.
            message = (
                f"the pattern of matches() has at most {_MAX_PATTERN_CHARACTERS} characters, and no counts in braces"
            )
            raise ValueError(message)
        return pattern.text

    def _parse_name(self, index: int) -> int:
        """Parse a name of a value; return the position after its path."""
        name = self.tokens[index].text
        self.analysis.names.add(name)
        is_in_loop = index < self.loop_end
        if is_in_loop and name == self.element:
            self.analysis.element_read_count += 1
            return index + 1
        source: Source = "nodes"
        node_id, end = "", index + 1
        if name == "nodes":
            node_id, end = self._parse_node_id(index)
        elif name in _RESERVED_NAMES:
            source = name  # type: ignore[assignment]  # `_RESERVED_NAMES` has the other sources
        else:
            node_id = name
        if source == "nodes" and not self.is_node(node_id):
            raise BadCondition(f"there is no node {node_id!r}", unknown_node=node_id)
        steps, end = self._parse_steps(end)
        self._replace_path(index, end, source=source, node_id=node_id, steps=steps, is_in_loop=is_in_loop)
        return end

    def _parse_node_id(self, index: int) -> tuple[str, int]:
        """Return the node id after the word `nodes`, and the position after the id.

        `nodes` is always the keyword, even if a node has the id `nodes`.
        """
        steps, end = self._parse_steps(index + 1, max_steps=1)
        if not steps or not isinstance(steps[0], str):
            raise ValueError('after `nodes` a node id in brackets and quotes is expected, such as nodes["my node"]')
        return unicodedata.normalize("NFC", steps[0]), end

    def _parse_steps(self, index: int, *, max_steps: int = 4_000) -> tuple[Steps, int]:
        """Return the keys and indices at a position, and the position after them."""
        steps: list[str | int] = []
        while len(steps) < max_steps:
            if self._is_token(index, ".") and self._kind(index + 1) == "name" and not self._is_token(index + 2, "("):
                steps.append(self.tokens[index + 1].text)
                index += 2
                continue
            step = self._parse_key(index + 1) if self._is_token(index, "[") and self._is_token(index + 2, "]") else None
            if step is None:
                break
            steps.append(step)
            index += 3
        return tuple(steps), index

    def _parse_key(self, index: int) -> str | int | None:
        token = self.tokens[index]
        if token.kind == "number":
            return int(token.text) if token.text.isdecimal() else None
        return _text_of(token.text) if token.kind == "string" else None

    def _replace_path(
        self, start: int, end: int, *, source: Source, node_id: str, steps: Steps, is_in_loop: bool
    ) -> None:
        """Replace a path, and a size() or has() around it, with a variable."""
        aspect: Literal["value", "size", "presence"] = "value"
        is_call = self._is_token(start - 1, "(") and self._is_token(end, ")") and not self._is_token(start - 3, ".")
        function = self.tokens[start - 2].text if is_call and self._kind(start - 2) == "name" else ""
        if function in ("size", "has"):
            aspect = "size" if function == "size" else "presence"
            start, end = start - 2, end + 1
        elif [token.text for token in self.tokens[end : end + 4]] == [".", "size", "(", ")"]:
            aspect, end = "size", end + 4
        variable = f"{self.variable_prefix}{len(self.analysis.reads)}"
        compared_texts = self._comparison_literals(start, end) if aspect == "value" else ()
        self.analysis.reads.append(Read(variable, source, node_id, steps, aspect, is_in_loop, compared_texts))
        # The spaces separate the variable from a word that directly follows the path: `rows[0]in [1, 2]`.
        self.pieces += [self.text[self.copied_end : self.tokens[start].start], f" {variable} "]
        self.copied_end = self.tokens[end - 1].end

    def _comparison_literals(self, start: int, end: int) -> tuple[str, ...]:
        """Return the literal texts that a path is compared with; empty if the path is only a part of an operand."""
        if self._is_equality_operator(end):
            first_index, literal_indices, end_index = start, [end + 2], end + 3
        elif self._is_equality_operator(start - 2):
            first_index, literal_indices, end_index = start - 3, [start - 3], end
        elif self._is_token(end, "in") and self._is_token(end + 1, "["):
            end_index = self._closing_index(end + 1) + 1
            first_index, literal_indices = start, [*range(end + 2, end_index - 1, 2)]
            if not all(self._is_token(index, ",") for index in range(end + 3, end_index - 1, 2)):
                return ()
        else:
            return ()
        if not (self._is_delimiter(first_index - 1) and self._is_delimiter(end_index)):
            return ()
        texts = [_text_of(self.tokens[index].text) for index in literal_indices if self._kind(index) == "string"]
        return tuple(text for text in texts if text is not None)

    def _is_equality_operator(self, index: int) -> bool:
        """Return whether the two tokens at an index are `==` or `!=`."""
        return self._is_token(index, "=" if self._is_token(index, "=") else "!") and self._is_token(index + 1, "=")

    def _is_delimiter(self, index: int) -> bool:
        """Return whether a token can delimit a comparison; true also if the index is before or after all tokens."""
        return not 0 <= index < len(self.tokens) or self.tokens[index].text in _COMPARISON_DELIMITERS

    def _is_token(self, index: int, text: str) -> bool:
        return 0 <= index < len(self.tokens) and self.tokens[index].text == text

    def _kind(self, index: int) -> str:
        return self.tokens[index].kind if 0 <= index < len(self.tokens) else ""


@lru_cache(maxsize=1024)
def _text_of(literal: str) -> str | None:
    """Return the text of a CEL string literal; `None` for bytes."""
    if literal[0] in "\"'" and "\\" not in literal and literal[:3] not in ('"""', "'''"):
        return literal[1:-1]
    value = compile_cel(literal).execute({})
    return value if isinstance(value, str) else None


def parse_checked_condition(text: str, is_node: Callable[[str], bool]) -> ParsedCondition:
    """Parse a condition that is valid CEL.

    Args:
        is_node: returns whether a text is the id of a node of the plan.

    Raises:
        ValueError: the condition reads an unknown value, or uses syntax that is not allowed in a condition.

    Complexity: linear in the text.
    """
    analysis = _ConditionParser(text, is_node).parse()
    nodes = dict.fromkeys(read.node_id for read in analysis.reads if read.source == "nodes")
    uses_item = any(read.source in ("item", "index") for read in analysis.reads)
    return ParsedCondition(text, tuple(nodes), uses_item, analysis)
