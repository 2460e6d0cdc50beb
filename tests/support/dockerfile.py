"""Read a Dockerfile to the extent that this project needs: instructions, continued lines, JSON forms."""

import json
import shlex
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction: its name in capitals, and the text after the name with continued lines joined."""

    instruction: str
    text: str

    @property
    def words(self) -> list[str]:
        return shlex.split(self.text)

    def json_after(self, word: str = "") -> list[str]:
        """Return the JSON list after `word`, at the end of the step."""
        words: list[str] = json.loads(self.text.partition(word)[2] if word else self.text)
        return words


@dataclass(frozen=True, slots=True)
class Stage:
    """The steps of one build stage, after its `FROM`.

    Args:
        name: name that later stages copy from; may be empty.
    """

    name: str
    steps: tuple[Step, ...]


def read_stages(path: Path) -> list[Stage]:
    """Return the stages in order; the last stage is the image."""
    stages: list[tuple[str, list[Step]]] = []
    for step in read_dockerfile(path):
        if step.instruction == "FROM":
            stages.append((step.text.partition(" AS ")[2], []))
        else:
            stages[-1][1].append(step)
    return [Stage(name, tuple(steps)) for name, steps in stages]


def read_dockerfile(path: Path) -> list[Step]:
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [Step(name.upper(), rest.strip()) for name, _, rest in (line.partition(" ") for line in lines)]
