"""`python -m tests.release DIST PYTHON ...`: whether what is in DIST can be released.

The wheel and the source archive are looked into, installed into a clean environment of each Python
that they are for, and started there. A wheel of one Python is tried on that one; the archive on
all, without compiling, since `make wheels` does that.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
EXTRA: Final = "server"
NEEDED: Final = ("LICENSE", "README.md", "pyproject.toml", "src/sluicegate/py.typed")
DECIDE: Final = (
    "from sluicegate import Limiter; one = Limiter('1/minute'); "
    "assert one.take('ann') and not one.take('ann')"
)
# What is started in each environment, by the words after its folder of programs.
SMOKE: Final = (
    ("python", "-P", "-c", DECIDE),
    ("sluicegate", "--version"),
    ("sluicegate", "doctor"),
    ("sluicegate", "up", "--free-ports", "--for", "5"),
)


def faults_of(dist: Path) -> Iterator[str]:
    """What is wrong with the files, before anything is installed."""
    wheels, archives = sorted(dist.glob("*.whl")), sorted(dist.glob("*.tar.gz"))
    if len(wheels) != 1 or len(archives) != 1:
        yield f"{dist} has {len(wheels)} wheels and {len(archives)} archives; make wheel makes both"
        return
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    for file in (wheels[0], archives[0]):
        if not file.name.startswith(f"sluicegate-{version}"):
            yield f"{file.name} is not of version {version}; make clean wheel"
    with zipfile.ZipFile(wheels[0]) as wheel:
        tops = {name.partition("/")[0] for name in wheel.namelist()}
    strays = {
        top for top in tops if top != "sluicegate" and not top.endswith((".dist-info", ".so"))
    }
    if strays:
        yield f"{wheels[0].name} has {', '.join(sorted(strays))}, which is not ours to install"
    with tarfile.open(archives[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    yield from (f"{archives[0].name} has no {name}" for name in NEEDED if name not in names)
    log = (ROOT / "CHANGELOG.md").read_text("utf-8")
    if f"## {version}" not in log and "## Unreleased" not in log:
        yield f"CHANGELOG.md says nothing of {version}"


def try_install(file: Path, python: str) -> str:
    """Install it into a clean environment and start it; return what is wrong, empty if nothing."""
    with tempfile.TemporaryDirectory(prefix="sluicegate-release-") as folder:
        programs = Path(folder) / "bin"
        pip = (str(programs / "python"), "-m", "pip", "--disable-pip-version-check", "--quiet")
        words: tuple[tuple[str, ...], ...] = (
            (python, "-m", "venv", folder),
            (*pip, "install", f"{file.resolve()}[{EXTRA}]"),
            *((str(programs / name), *rest) for name, *rest in SMOKE),
        )
        for command in words:
            done = subprocess.run(
                command,
                cwd=folder,
                env=os.environ | {"SLUICEGATE_COMPILE": "0"},
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                said = (done.stderr or done.stdout).strip().splitlines()
                return f"{' '.join(command[:3])}: {said[-1] if said else done.returncode}"
    return ""


def is_for(file: Path, python: str) -> bool:
    """Whether a file can be installed on this Python: an archive, a pure wheel, one of its own."""
    if file.suffix != ".whl" or "-py3-none-any" in file.name:
        return True
    tag = "import sys; print('cp%d%d' % sys.version_info[:2])"
    done = subprocess.run([python, "-c", tag], capture_output=True, text=True, check=True)
    return f"-{done.stdout.strip()}-" in file.name


def main(dist: Path, pythons: Sequence[str]) -> int:
    """Check all; 1 if anything is wrong."""
    faults = list(faults_of(dist))
    for file in sorted([*dist.glob("*.whl"), *dist.glob("*.tar.gz")]):
        for python in pythons:
            if is_for(file, python):
                fault = try_install(file, python)
                sys.stdout.write(f"{file.name} on {python}: {fault or 'installed and started'}\n")
                sys.stdout.flush()
                faults += [fault] if fault else []
    for fault in faults:
        sys.stderr.write(f"not to be released: {fault}\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
