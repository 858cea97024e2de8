"""What is built: the light import, and the compiled modules where they are promised."""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path
from unittest.mock import create_autospec, patch

import pytest

import setup
import sluicegate
from sluicegate import Claim, Decision, Limiter
from sluicegate.contracts.arrival import Arrival
from sluicegate.contracts.guard import Guard, Judgement
from sluicegate.contracts.store import Charge, Store
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


# What a user's editor, tests and own classes need; the same in both builds.


def test_docstrings_and_signatures_are_there_to_be_read() -> None:
    assert "Limits by key" in str(inspect.getdoc(sluicegate.Limiter))
    assert [*inspect.signature(sluicegate.Limiter).parameters][:3] == ["rule", "store_url", "rules"]
    assert "Decide whether `key`" in str(inspect.getdoc(sluicegate.Limiter.take))
    assert [*inspect.signature(sluicegate.Limiter.take).parameters] == [
        "self",
        "key",
        "cost",
        "rule",
    ]
    assert [*inspect.signature(sluicegate.Limit).parameters][2] == "period_us"
    for name in ("Limit", "Limiter", "Permits", "Reservation", "Rule", "Decision"):
        assert inspect.getdoc(getattr(sluicegate, name)), name


def test_a_method_can_be_patched_and_a_double_be_made() -> None:
    made = sluicegate.Limiter("1/hour")
    with patch.object(sluicegate.Limiter, "take", return_value=7):
        assert made.take("ann") == 7
    assert made.take("ann")
    double = create_autospec(sluicegate.Limiter, instance=True)
    double.take.return_value = False
    assert not double.take("ann")
    with pytest.raises(AttributeError):
        double.tale("ann")


def test_the_documented_protocols_can_be_subclassed() -> None:
    class Mine(Guard):
        def judge(self, arrival: Arrival) -> Judgement | None:
            return None

        async def ajudge(self, arrival: Arrival) -> Judgement | None:
            return None

    class Abroad(Store):
        async def close(self) -> None:
            return None

    assert Guard in Mine.__mro__
    assert Store in Abroad.__mro__


def test_what_the_compiler_leaves_out_is_filled_in() -> None:
    source = """
class Cup:
    '''It "holds".'''
    def __init__(self, size: int = LARGE, *, of: str | None = None) -> None: ...
    def fill(self, more: int) -> None:
        '''Pour.'''
"""
    translated = """
    {"fill", (PyCFunction)CPyPy_cup___Cup___fill,
     METH_FASTCALL, PyDoc_STR("fill($self, more)\\n--\\n\\n")},
    {"fill", (PyCFunction)CPyPy_cup___Saucup___fill, METH_FASTCALL, PyDoc_STR(NULL)},
    .tp_name = "Cup",
    .tp_doc = PyDoc_STR(NULL),
"""
    filled = setup.add_docs(translated, source)
    assert r'PyDoc_STR("fill($self, more)\012--\012\012Pour.")' in filled
    assert r'"Cup(size=..., *, of=None)\012--\012\012It \042holds\042.")' in filled
    assert filled.count("PyDoc_STR(NULL)") == 1


def test_docstrings_of_named_tuples_are_filled_in() -> None:
    source = """
class Cup(NamedTuple):
    '''Holds "it".'''
class Bowl(NamedTuple):
    '''Holds more.'''
"""
    names = ("CPyType_cup___Cup", "CPyType_Bowl")
    translated = "\n".join(
        f"x = CPyStatics[1{n}]; /* 'mypyc filler docstring' */\ny = 0;\n{name} = (PyTypeObject *)x;"
        for n, name in enumerate(names)
    )
    filled = setup.add_docs(translated, source)
    assert "filler" not in filled
    first, second = filled.split(names[0])
    assert r'x = PyUnicode_FromString("Holds \042it\042.");' in first
    assert 'x = PyUnicode_FromString("Holds more.");' in second


@pytest.mark.parametrize("public", [Claim, Judgement, Charge, Decision, Limiter])
def test_public_class_keeps_its_docstring(public: type) -> None:
    """A compiled named tuple had that of the compiler."""
    source = Path(__file__).parents[1].joinpath("src", *public.__module__.split("."))
    tree = ast.parse(source.with_suffix(".py").read_text(encoding="utf-8"))
    classes = {one.name: one for one in tree.body if isinstance(one, ast.ClassDef)}
    said = ast.get_docstring(classes[public.__name__])
    assert said
    assert said in (inspect.getdoc(public) or "")


def test_extra_all_brings_every_other_extra() -> None:
    text = (Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8")
    extras = tomllib.loads(text)["project"]["optional-dependencies"]
    brought = re.findall(r"[\w-]+", extras.pop("all")[0].partition("[")[2])
    assert brought == sorted(extras)
