"""The faulty disk (`faulty_disk.c`), built once with gcc, and the environment that loads it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("faulty_disk.c")


@cache
def build() -> Path | None:
    """Return the library; None without gcc."""
    compiler = shutil.which("gcc")
    if compiler is None:
        return None
    target = Path(tempfile.mkdtemp(prefix="faulty-disk-")) / "faulty_disk.so"
    flags = ("-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror")
    subprocess.run([compiler, *flags, "-o", target, SOURCE, "-ldl", "-lpthread"], check=True)
    return target


def faults(folder: Path, **settings: object) -> dict[str, str]:
    """Return the environment of a process whose files below `folder` are on the faulty disk."""
    library = build()
    if library is None:
        pytest.skip("needs gcc for the faulty disk")
    names = {f"FAULTY_DISK_{name.upper()}": str(value) for name, value in settings.items()}
    return {
        **os.environ,
        "LD_PRELOAD": str(library),
        "FAULTY_DISK_FOLDER": str(folder),
        **names,
    }
