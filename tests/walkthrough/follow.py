"""Runs the commands and programs of the documents as a reader would, and compares their output with the documents.

    python3 tests/walkthrough/follow.py --programs target/debug --python target/python/venv/bin
    python3 tests/walkthrough/follow.py --root FOLDER --kind python|rust

The first form uses this machine: new folders, free ports, and programs that are already built. The second form uses a
minimal Debian system, which packaging/test-documents makes, with the documents' own paths and ports.

Every block is run, is in plan.py with the reason why not, or needs a tool that is missing. The end of the output lists
all blocks that were not run. The exit status is 0 if no command failed and all output was as shown.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import plan
from blocks import Block, Command, read_blocks, read_commands
from shell import Failed, Shell

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target")).resolve()
COMMAND_TIMEOUT_S = 120
BUILD_TIMEOUT_S = 3600
# A program that has no end is stopped after it has printed a line.
ENDLESS = {"docs/cookbook/configuration.md": "generation "}

# Runs blocks of Python one after another in one namespace. `await` may be outside functions, as in notebooks.
RUN_BLOCKS = """
import ast, asyncio, inspect, json, sys
namespace = {"__name__": "__main__"}
for place, text in json.load(open(sys.argv[1])):
    code = compile(text, place, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if code.co_flags & inspect.CO_COROUTINE:
        asyncio.run(eval(code, namespace))
    else:
        exec(code, namespace)
"""


class Machine:
    """Where the commands run: the folder that they see as `folder`, and how its files are reached from here."""

    def __init__(self, arguments: argparse.Namespace, scratch: pathlib.Path) -> None:
        self.scratch = scratch
        self.root = arguments.root
        self.kind = arguments.kind
        if self.root:
            self.command = [str(REPOSITORY / "packaging" / "chroot"), str(self.root), "run"]
            self.tools = {"python": {"python", "wheel"}, "rust": {"cargo", "rust"}}[self.kind]
            return
        self.command = ["env"]
        self.programs, self.python = arguments.programs.resolve(), arguments.python.absolute()
        self.tools = {"python", "rust"}
        self.tools |= {name for name in ("redis-cli", "java") if shutil.which(name)}
        has_feast = subprocess.run([self.python / "python", "-c", "import feast"], stderr=subprocess.DEVNULL)
        self.tools |= {"feast"} if has_feast.returncode == 0 else set()
        self.tools -= {arguments.without}

    def host_path(self, path: str) -> pathlib.Path:
        """Return the path, from this process, of a path that the commands see."""
        return self.root / path.lstrip("/") if self.root else pathlib.Path(path)

    def make_folder(self, name: str) -> str:
        """Return a folder in which a reader of a document starts: a clone of the repository."""
        if self.root:
            return self.make_clone(name)
        # The path is short, because the path of a socket is limited to 107 bytes.
        folder = self.scratch / name / "zero-kv"
        for part in ("root/tmp", "root/run", "root/var/lib", "target"):
            (folder / part).mkdir(parents=True)
        (folder / "target" / "release").symlink_to(self.programs)
        for part in ("datasets", "examples"):
            (folder / part).symlink_to(REPOSITORY / part)
        return str(folder)

    def make_clone(self, name: str) -> str:
        """Return a folder with links to the clone in the system, so that no document sees the files of another one. The
        first document, which builds the programs, has the clone itself.
        """
        if name == "0":
            return "/root/zero-kv"
        folder = self.host_path(f"/root/{name}/zero-kv")
        folder.mkdir(parents=True)
        tracked = subprocess.check_output(["git", "ls-tree", "--name-only", "HEAD"], cwd=REPOSITORY, text=True).splitlines()
        for part in [*tracked, "target"]:
            (folder / part).symlink_to(f"/root/zero-kv/{part}")
        return f"/root/{name}/zero-kv"

    def programs_folder(self) -> str:
        """Return the folder of Rust programs, which is next to the repository. On this machine, it is always the same, so
        that Cargo builds the library once for all programs with the same features.
        """
        if self.root:
            return "/root"
        folder = TARGET / "walkthrough"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "zero-kv").unlink(missing_ok=True)
        (folder / "zero-kv").symlink_to(REPOSITORY)
        return str(folder)

    def variables(self, folder: str) -> dict[str, str]:
        if self.root:
            path = "/root/venv/bin:/root/.cargo/bin:/usr/local/bin:/usr/bin:/bin"
            return {"PATH": path, "VIRTUAL_ENV": "/root/venv"}
        path = f"{self.programs}:{self.python}:{os.environ['PATH']}"
        return {
            "PATH": path,
            "ZERO_KV_SOCKET": f"{folder}/root/tmp/zero-kv.sock",
            "CARGO_TARGET_DIR": str(TARGET / "walkthrough" / "target"),
            "CARGO_PROFILE_DEV_DEBUG": "false",
        }

    def replacements(self, folder: str) -> dict[str, str]:
        """Return texts of the documents that differ on this machine: addresses, and paths outside the folder."""
        if self.root:
            return {"10.0.0.": "127.0.0."}
        paths = ["/tmp/zero-kv.sock", "/tmp/ip-ranges.sock", "/tmp/users", "/run/zero-kv", "/var/cache", "/var/lib/zero-kv"]
        addresses = {":6380": f":{unused_port()}", "10.0.0.": "127.0.0."}
        return {path: f"{folder}/root{path}" for path in paths} | addresses | {"venv/bin/python ": "python "}


class Reader:
    """Follows one document."""

    def __init__(self, machine: Machine, document: str, store: dict[str, str]) -> None:
        self.machine, self.document = machine, document
        self.not_run: list[str] = []
        self.ran = 0
        name = str(plan.DOCUMENTS.index(document))
        self.folder = machine.make_folder(name)
        self.replaced = machine.replacements(self.folder)
        self.dependencies: str | None = None
        self.shell = Shell(machine.command, machine.scratch / f"{name}.log", {**machine.variables(self.folder), **store})
        self.run(f"cd {self.folder}")

    def follow(self) -> None:
        blocks = read_blocks(REPOSITORY, self.document)
        together = self.document in plan.ONE_PROGRAM
        programs = []
        for block in blocks:
            if reason := self.find(plan.NOT_RUN, block):
                self.not_run.append(f"{block.place}: {reason}")
            elif (name := self.find(plan.SAVED, block)) is not None:
                self.write(f"{self.folder}/{name}", block.text + "\n")
            elif block.language == "console":
                self.console(block)
            elif block.language == "toml":
                self.dependencies = block.text.removeprefix("[dependencies]\n")
            elif block.language == "rust" and self.has_tool("rust", block.place):
                self.rust(block)
            elif block.language == "python" and self.has_tool("python", block.place):
                if self.has_tool(tool_of(block.text), block.place):
                    programs.append(block)
                    if not together:
                        self.python(programs)
                        programs = []
            elif block.language not in ("python", "rust"):
                raise Failed(f"{block.place}: found a block of {block.language!r}; add it to {plan.__file__}")
        if programs:
            self.python(programs)

    def find(self, table: dict[tuple[str, str], object], item: Block | Command) -> object:
        """Return what the plan has for a block or command."""
        return next((found for key, found in table.items() if matches(key, item)), None)

    def has_tool(self, tool: str | None, place: str) -> bool:
        if tool is None or tool in self.machine.tools:
            return True
        self.not_run.append(f"{place}: needs {tool}")
        return False

    def run(self, command: str, timeout_s: float = COMMAND_TIMEOUT_S, wait_for: str | None = None) -> tuple[int, str]:
        for shown, actual in self.replaced.items():
            command = command.replace(shown, actual)
        status, output = self.shell.run(command, timeout_s, wait_for)
        for shown, actual in self.replaced.items():
            if shown[0] in "/:":
                output = output.replace(actual, shown)
        return status, output

    def check(self, place: str, command: str, timeout_s: float = COMMAND_TIMEOUT_S) -> str:
        """Run a command that must succeed, and return its output."""
        status, output = self.run(command, timeout_s)
        if status != 0:
            raise Failed(f"{place}: exit status {status}, expected 0:\n{command}\n{output}")
        return output

    def prepare(self, item: Block | Command) -> None:
        if (commands := self.find(plan.SHELL, item)) is not None:
            self.check(item.place, str(commands))

    def console(self, block: Block) -> None:
        for command in read_commands(block):
            if not self.has_tool(tool_of(command.text), command.place):
                continue
            self.prepare(command)
            started = time.monotonic()
            status, output = self.run(*adapted(command))
            print(f"{command.place}: $ {command.text} ({time.monotonic() - started:.1f} s)", flush=True)
            if status != 0:
                raise Failed(f"{command.place}: exit status {status}, expected 0:\n{output}")
            if command.output and words(output) != words(command.output):
                raise Failed(f"{command.place}: found the output\n{output}\nexpected\n{command.output}")
            self.ran += 1

    def write(self, path: str, text: str) -> None:
        for shown, actual in self.replaced.items():
            text = text.replace(shown, actual)
        file = self.machine.host_path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def python(self, blocks: list[Block]) -> None:
        parts = []
        for block in blocks:
            self.prepare(block)
            parts += [("plan.py", before)] if (before := self.find(plan.PYTHON, block)) else []
            parts.append((block.place, block.text))
        self.write(f"{self.folder}/blocks.json", json.dumps(parts))
        self.write(f"{self.folder}/run_blocks.py", RUN_BLOCKS)
        print(f"{blocks[0].place}: {len(blocks)} blocks of Python", flush=True)
        output = self.check(blocks[0].place, "python3 run_blocks.py blocks.json")
        for block in blocks:
            # A comment after a call of `print` shows what the call prints.
            for line in re.findall(r"^print\(.*\) +# (.*)$", block.text, re.MULTILINE):
                if line not in output.splitlines():
                    raise Failed(f"{block.place}: found the output\n{output}\nexpected the line\n{line}")
        self.ran += len(blocks)

    def rust(self, block: Block) -> None:
        if self.dependencies is None:
            raise Failed(f"{block.place}: found a Rust program, expected a block with its dependencies before it")
        self.prepare(block)
        folder, name = self.machine.programs_folder(), re.sub(r"\W+", "-", f"program-{self.document}-{self.ran}")
        project = f"{folder}/{name}"
        manifest = f'[package]\nname = "{name}"\nedition = "2024"\n\n[workspace]\n\n[dependencies]\n{self.dependencies}\n'
        self.write(f"{project}/Cargo.toml", manifest)
        self.write(f"{project}/src/main.rs", block.text + "\n")
        print(f"{block.place}: a Rust program with {self.dependencies}", flush=True)
        # The versions of this repository's lock file, so that nothing is downloaded a second time.
        self.check(block.place, f"cp {folder}/zero-kv/Cargo.lock {project}/Cargo.lock")
        self.check(block.place, f"cargo build --quiet --manifest-path {project}/Cargo.toml", BUILD_TIMEOUT_S)
        if (line := ENDLESS.get(self.document)) is None:
            self.check(block.place, f"cargo run --quiet --manifest-path {project}/Cargo.toml")
        else:
            self.run(f"cargo run --quiet --manifest-path {project}/Cargo.toml &", wait_for=line)
        self.ran += 1


def unused_port() -> int:
    """Return a port that no process listens on. Linux gives these ports to no outgoing connection."""
    while True:
        port = random.randrange(11_000, 31_000)
        try:
            for address in ("127.0.0.1", "127.0.0.2"):
                with socket.socket() as listener:
                    listener.bind((address, port))
            return port
        except OSError:
            pass


def matches(key: tuple[str, str], item: Block | Command) -> bool:
    """Return whether a key of the plan is for a block or command."""
    return item.place.startswith(f"{key[0]}:") and item.text.startswith(key[1])


def tool_of(text: str) -> str | None:
    return next((tool for part, tool in plan.TOOLS.items() if part in text), None)


def adapted(command: Command) -> tuple[str, float, str | None]:
    """Return a command for a shell without a terminal, its time limit, and the output to wait for."""
    text = command.text
    name = text.split(" ", 1)[0]
    if name == "kv_store":
        text = re.sub(r"\s*&?(\s+#.*)?$", " &", text, count=1)
        return text, COMMAND_TIMEOUT_S, "ready on"
    if name == "redis-cli":
        text = text.replace("redis-cli", "redis-cli --no-raw", 1)
    if command.output:
        text = f"{{ {text}\n}} 2>/dev/null"  # without progress and warnings
    if text.startswith("zkv top "):
        text = text.replace("zkv top ", "zkv top --count 2 ", 1)
    is_long = tool_of(text) in ("cargo", "wheel", "java")
    return text, BUILD_TIMEOUT_S if is_long else COMMAND_TIMEOUT_S, None


def words(text: str) -> list[str]:
    """Return the words of an output, without what differs from run to run: times, rates, and the number of workers."""
    found = text.split()
    is_measured = [
        word.startswith("workers=") or re.fullmatch(r"\d{4}-\d\d-\d\dT.*Z", word) or following in ("s,", "rows/s,")
        for word, following in zip(found, [*found[1:], ""])
    ]
    return ["…" if measured else word for word, measured in zip(found, is_measured)]


@contextlib.contextmanager
def object_store() -> Iterator[dict[str, str]]:
    """Start moto's S3 server with the bucket `tables`. Yields the variables with which programs find it."""
    program = """
import logging, sys, urllib.request
from moto.server import ThreadedMotoServer
logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
url = "http://%s:%s" % server.get_host_and_port()
urllib.request.urlopen(urllib.request.Request(url + "/tables", method="PUT"))
print(url, flush=True)
sys.stdin.read()
"""
    python = TARGET / "moto" / "bin" / "python"
    if not python.exists():
        sys.exit(f"{python} is missing: .ci/run installs it")
    process = subprocess.Popen([python, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    try:
        yield {
            "AWS_ENDPOINT_URL": process.stdout.readline().strip(),
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
        }
    finally:
        process.kill()
        process.communicate()


def follow_all(machine: Machine, documents: list[str]) -> int:
    failures, not_run, ran = [], [], 0
    for document in documents:
        with object_store() as store:
            reader = Reader(machine, document, store)
            try:
                reader.follow()
            except Failed as error:
                failures.append(str(error))
            finally:
                reader.shell.stop()
        not_run += reader.not_run
        ran += reader.ran
    failures += [f"plan.py: nothing in {key[0]} begins with {key[1]!r}" for key in unmatched_keys()]
    print(f"\n{ran} commands and programs ran as shown; not run:", *(not_run or ["none"]), sep="\n")
    print(*(f"\nFAILED {failure}" for failure in failures), sep="\n", file=sys.stderr)
    return 1 if failures or ran == 0 else 0


def unmatched_keys() -> set[tuple[str, str]]:
    """Return the keys of the plan that match no block and no command."""
    keys = {key for table in (plan.NOT_RUN, plan.SHELL, plan.PYTHON, plan.SAVED) for key in table}
    for document in plan.DOCUMENTS:
        for block in read_blocks(REPOSITORY, document):
            items = [block, *(read_commands(block) if block.language == "console" else [])]
            keys -= {key for key in keys if any(matches(key, item) for item in items)}
    return keys


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    programs, python = TARGET / "debug", TARGET / "python" / "venv" / "bin"
    parser.add_argument("--programs", type=pathlib.Path, default=programs, help="folder of kv_store and the other programs")
    parser.add_argument("--python", type=pathlib.Path, default=python, help="folder of a Python that has the package")
    parser.add_argument("--root", type=pathlib.Path, help="a minimal Debian system")
    parser.add_argument("--kind", choices=["python", "rust"], help="what the system has")
    parser.add_argument("--without", choices=["java"], help="do not run what needs this tool")
    parser.add_argument("documents", nargs="*", default=plan.DOCUMENTS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="zkv.") as scratch:
        return follow_all(Machine(arguments, pathlib.Path(scratch)), arguments.documents)


if __name__ == "__main__":
    sys.exit(main())
