from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from types import ModuleType

import pytest

import sluicegate
from sluicegate import cli
from sluicegate.contracts.errors import BadValue, SluicegateError, Unavailable


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A command `fail` whose run raises what it is told to."""
    module = ModuleType("sluicegate_test_fail")
    vars(module).update(EXAMPLES="examples:\n", add_arguments=lambda _: None)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    row = cli.CommandEntry("fail", "fail as it is told", module.__name__, extra="kv")
    monkeypatch.setattr(cli, "COMMANDS", (*cli.COMMANDS, row))
    return module


def test_without_a_command_it_shows_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    bare = capsys.readouterr().out
    assert cli.main(["--help"]) == 0
    assert capsys.readouterr().out == bare
    for command in cli.COMMANDS:
        assert f"  {command.name} " in bare
        assert command.help in bare
    assert "examples:\n  sluicegate up" in bare


def test_it_tells_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"sluicegate {sluicegate.__version__}\n"


def test_python_runs_it_as_a_module() -> None:
    command = [sys.executable, "-m", "sluicegate", "--version"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert told == f"sluicegate {sluicegate.__version__}\n"


@pytest.mark.parametrize("command", cli.COMMANDS, ids=lambda command: command.name)
def test_every_row_has_a_module_and_a_help_with_examples(
    command: cli.CommandEntry, capsys: pytest.CaptureFixture[str]
) -> None:
    module = import_module(command.module)
    assert callable(module.run)
    with pytest.raises(SystemExit) as ended:
        cli.main([command.name, "--help"])
    assert ended.value.code == 0
    output = capsys.readouterr().out
    assert f"examples:\n  sluicegate {command.name} " in output
    assert f"usage: sluicegate {command.name}" in output


def test_a_command_that_is_not_there_is_told_with_the_nearest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["docter"]) == 2
    output = capsys.readouterr().err
    assert output == (
        "sluicegate: there is no command 'docter'; did you mean 'doctor'? "
        "there are up, limits, lab, limiter, kv, pubsub, images, console, top, resilience, quota, "
        "rules, why, dlq, doctor; see sluicegate --help\n"
    )
    assert cli.main(["--verbose"]) == 2
    assert "no flag '--verbose'" in capsys.readouterr().err


def test_a_wrong_flag_is_one_line_that_says_where_to_look(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["up", "--speed", "9"])
    assert ended.value.code == 2
    output = capsys.readouterr().err
    assert output == "sluicegate: there is no flag --speed; see sluicegate up --help\n"


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (BadValue("--load", "x", "give a number"), 2, "--load: 'x' cannot be used; give a number"),
        (SluicegateError("it is full; empty it"), 1, "it is full; empty it"),
        (Unavailable("redis", "no answer"), 1, "redis is unavailable: no answer"),
        (
            ModuleNotFoundError("no", name="lmdb"),
            1,
            "the package lmdb is missing; pip install '.[kv]' in the checkout",
        ),
    ],
)
def test_an_error_is_one_line_and_an_exit_code(
    failing: ModuleType,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    code: int,
    line: str,
) -> None:
    def run(_: object) -> int:
        raise error

    vars(failing)["run"] = run
    assert cli.main(["fail"]) == code
    assert capsys.readouterr().err == f"sluicegate: {line}\n"


@pytest.mark.parametrize(
    "error", [ModuleNotFoundError("no", name="sluicegate.nowhere"), RuntimeError("a bug")]
)
def test_a_bug_of_ours_keeps_its_traceback(failing: ModuleType, error: Exception) -> None:
    def run(_: object) -> int:
        raise error

    vars(failing)["run"] = run
    with pytest.raises(type(error)):
        cli.main(["fail"])


def test_an_interrupt_is_no_traceback(failing: ModuleType) -> None:
    def run(_: object) -> int:
        raise KeyboardInterrupt

    vars(failing)["run"] = run
    assert cli.main(["fail"]) == 130


def test_help_imports_no_optional_package() -> None:
    script = (
        "import sys; from sluicegate.cli import main;"
        "main(['--help']); main(['up', '--for', 'x']);"
        "print(sorted({'asyncio', 'uvicorn', 'rich', 'uvloop'} & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=20
    )
    assert result.stdout.splitlines()[-1] == "[]"


def test_output_that_a_terminal_cannot_show_is_escaped() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "sluicegate.cli", "up", "--for", "水"],
        capture_output=True,
        env={"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
        check=False,
        timeout=60,
    )
    assert result.returncode == 2
    assert b"\\u6c34" in result.stderr
    assert b"Traceback" not in result.stderr
