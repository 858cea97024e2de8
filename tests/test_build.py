"""What is built: the light import, and the compiled modules where they are promised."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import setup
import sluicegate
from sluicegate.kernels import gcra
from sluicegate.limits import limiter
from sluicegate.stores.memory import table

MODULES_MAX = 130  # of the standard library too; the time that an import takes is theirs

PROBE = """
import json, sys
before = set(sys.modules)
import sluicegate
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def test_importing_sluicegate_loads_little_and_no_other_package() -> None:
    found = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, check=True).stdout
    modules = json.loads(found)
    packages = {name.partition(".")[0] for name in modules if not name.endswith("__mypyc")}
    assert packages - sys.stdlib_module_names == {"sluicegate"}
    assert len(modules) <= MODULES_MAX
    assert "asyncio" not in packages


def test_the_versions_agree() -> None:
    pyproject = (Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8")
    assert f'version = "{sluicegate.__version__}"' in pyproject


@pytest.mark.skipif(
    os.environ.get("SLUICEGATE_EXPECT_COMPILED") != "1" or setup.c_compiler() is None,
    reason="this is the interpreted build; the compiled one is: make test-compiled",
)
def test_what_should_be_compiled_is_compiled() -> None:
    for module in (gcra, table, limiter):
        assert module.__file__ is not None
        assert not module.__file__.endswith(".py"), module.__file__


def test_every_hot_file_exists() -> None:
    for source in setup.compiled_sources():
        assert (Path(__file__).parent.parent / source).is_file()


def test_a_wish_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICEGATE_COMPILE", "yes")
    with pytest.raises(SystemExit, match="SLUICEGATE_COMPILE must be 0, 1 or auto, not 'yes'"):
        setup.will_compile()


def test_an_older_python_is_refused_before_anything_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 13))
    with pytest.raises(SystemExit, match=r"needs Python 3\.11 or newer; this is 3\.\d+"):
        setup.main()


def test_the_build_and_the_package_agree_on_the_oldest_python() -> None:
    pyproject = (Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8")
    assert 'requires-python = ">={}.{}"'.format(*setup.PYTHON_MIN) in pyproject


@pytest.fixture(params=["no C compiler", "no Python.h"])
def missing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A machine that lacks something for compiling."""
    if request.param == "no C compiler":
        monkeypatch.setenv("CC", "/nowhere/cc")
    else:
        monkeypatch.setenv("CC", sys.executable)  # any program will do
        monkeypatch.setattr(sysconfig, "get_path", lambda name: f"/nowhere/{name}")
    return str(request.param)


def test_without_what_compiling_takes_it_installs_interpreted_and_says_so(
    missing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SLUICEGATE_COMPILE", "auto")
    assert not setup.will_compile()
    line = capsys.readouterr().out
    assert line.count("\n") == 1
    assert missing in line
    assert "python3-dev)" in line


def test_insisting_without_what_compiling_takes_fails(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLUICEGATE_COMPILE", "1")
    with pytest.raises(SystemExit, match=f"SLUICEGATE_COMPILE=1, but there is {missing}"):
        setup.will_compile()
