"""The fenced blocks of a Markdown document."""

from __future__ import annotations

import dataclasses
import pathlib


@dataclasses.dataclass(frozen=True)
class Block:
    """A fenced block of code."""

    document: str
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.document}:{self.line}"


@dataclasses.dataclass(frozen=True)
class Command:
    """A command of a console block, and the output that the document shows."""

    place: str
    text: str
    output: str


def read_blocks(repository: pathlib.Path, document: str) -> list[Block]:
    """Return the blocks of a document, whose path is relative to the repository."""
    blocks: list[Block] = []
    language, started, lines = None, 0, []
    for number, line in enumerate((repository / document).read_text().splitlines(), start=1):
        if language is None and line.startswith("```"):
            language, started, lines = line[3:].split(",")[0], number + 1, []
        elif language is not None and line == "```":
            blocks.append(Block(document, started, language, "\n".join(lines)))
            language = None
        elif language is not None:
            lines.append(line)
    return blocks


def read_commands(block: Block) -> list[Command]:
    """Return the commands of a console block. A line that ends with a backslash continues on the next line."""
    commands: list[Command] = []
    continues = False
    for number, line in enumerate(block.text.splitlines(), start=block.line):
        if continues:
            last = commands.pop()
            commands.append(dataclasses.replace(last, text=f"{last.text}\n{line}"))
        elif line.startswith("$ "):
            commands.append(Command(f"{block.document}:{number}", line[2:], ""))
        elif commands:
            last = commands.pop()
            commands.append(dataclasses.replace(last, output=f"{last.output}{line}\n"))
        else:
            raise ValueError(f"{block.document}:{number}: found {line!r}, expected a command after `$ `")
        continues = line.endswith("\\")
    return commands
