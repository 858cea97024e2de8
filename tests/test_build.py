"""What is built: the light import, and the compiled modules where they are promised."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import setup
import sluicegate
from sluicegate.kernels import gcra
from sluicegate.limits import limiter
from sluicegate.stores.memory import table

IMPORT_MS_MAX = 100

PROBE = """
import json, sys, time
before = set(sys.modules)
started = time.perf_counter()
import sluicegate
took_ms = (time.perf_counter() - started) * 1000
outside = {name.partition(".")[0] for name in set(sys.modules) - before}
outside = sorted(name for name in outside if name not in sys.stdlib_module_names)
print(json.dumps([took_ms, outside]))
"""


def probe() -> tuple[float, list[str]]:
    out = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, check=True).stdout
    took_ms, outside = json.loads(out)
    return took_ms, outside


def test_importing_sluicegate_is_quick_and_loads_no_other_package() -> None:
    probes = [probe() for _ in range(5)]
    outside = {name for _, names in probes for name in names if not name.endswith("__mypyc")}
    assert outside == {"sluicegate"}
    # The quickest of five: a busy machine says nothing about us.
    assert min(took_ms for took_ms, _ in probes) < IMPORT_MS_MAX


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
        setup.extensions()


def test_without_a_compiler_it_installs_interpreted_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SLUICEGATE_COMPILE", "auto")
    monkeypatch.setattr(setup, "c_compiler", lambda: None)
    assert setup.extensions() == []
    output = capsys.readouterr().out
    assert output.count("\n") == 1
    assert "no C compiler (Debian: apt-get install gcc python3-dev)" in output


def test_insisting_on_a_compiler_that_is_not_there_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICEGATE_COMPILE", "1")
    monkeypatch.setattr(setup, "c_compiler", lambda: None)
    with pytest.raises(SystemExit, match="SLUICEGATE_COMPILE=1, but there is no C compiler"):
        setup.extensions()
