from __future__ import annotations

import importlib.metadata
import io
import json
import stat
from argparse import ArgumentParser
from collections.abc import Callable
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from subprocess import CompletedProcess

import pytest

import sluicegate
from sluicegate.apps import doctor
from sluicegate.apps.doctor import Finding, Section
from sluicegate.stores.images.confinement import PROTECTIONS


def run(*flags: str) -> int:
    parser = ArgumentParser()
    doctor.add_arguments(parser)
    return doctor.run(parser.parse_args(flags))


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Makes programs that are found before, and instead of, the machine's own."""
    monkeypatch.setenv("PATH", str(tmp_path))

    def make(name: str, script: str) -> None:
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    return make


def section(title: str) -> Section:
    return dict(doctor.SECTIONS)[title](title)


def findings(title: str) -> dict[str, Finding]:
    return {finding.name: finding for finding in section(title).findings}


def test_a_build_says_how_many_modules_are_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "src" / "sluicegate"
    package.mkdir(parents=True)
    for name in ("__init__", "a", "b"):
        (package / f"{name}.py").touch()
    monkeypatch.setattr(sluicegate, "__file__", str(package / "__init__.py"))
    assert section("build").summary == "interpreted: none of 2 modules is compiled"
    assert [finding.present for finding in section("build").findings] == [False]
    install = "SLUICEGATE_COMPILE=1 pip install --force-reinstall --no-deps"
    assert section("build").findings[0].get == f"{install} .  # in the checkout"
    (tmp_path / "setup.py").touch()  # it runs from a checkout
    assert section("build").findings[0].get == f"{install} {tmp_path}"
    (package / f"b{EXTENSION_SUFFIXES[0]}").touch()
    assert section("build").summary == "1 of 2 modules are compiled"
    assert [finding.present for finding in section("build").findings] == [True]


def test_a_program_that_is_there_tells_its_version(program: Callable[[str, str], None]) -> None:
    program("redis-server", "echo 'Redis server v=7.2.4'")
    program("java", "echo 'Picked up JAVA_TOOL_OPTIONS: -X1.5' >&2; echo 'openjdk 17.0.1' >&2")
    found = findings("engines")
    assert found["redis"].present
    assert found["redis"].words.startswith("Redis server v=7.2.4 (")
    assert found["java"].words.startswith("openjdk 17.0.1 (")


def test_a_program_that_is_missing_has_the_command_that_gets_it(
    program: Callable[[str, str], None],
) -> None:
    found = findings("engines")
    assert not any(finding.present for finding in found.values())
    assert found["redis"].get == "apt-get install redis-server"
    assert all(finding.get for finding in found.values())


def test_odd_programs_are_findings_and_not_crashes(
    program: Callable[[str, str], None], tmp_path: Path
) -> None:
    program("java", "exit 3")
    program("mvn", r"printf '\033[31mred \377\007 1.2\n'")
    program("envoy", "printf '%0500d1.2' 0")
    broken = tmp_path / "chromium"
    broken.write_bytes(b"\x7fELF nonsense")
    broken.chmod(0o755)
    found = findings("engines")
    assert found["java"].words.startswith("tells no version")
    assert found["maven"].words.isprintable()
    assert "1.2" in found["maven"].words
    assert len(found["envoy"].words) < 300
    assert "cannot be started" in found["chromium"].words


def test_a_program_that_does_not_answer_is_not_waited_for(
    program: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "ASK_S_MAX", 0.2)
    program("redis-server", "while :; do :; done")
    assert "did not tell its version in 0.2 s" in findings("engines")["redis"].words


def test_extras_are_those_of_the_installed_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        importlib.metadata,
        "requires",
        lambda _: [
            'pytest>=9,<10; extra == "server"',
            "sg_no_such_package (>=1) ; extra == 'kv'",
            'sg_no_such_package; python_version > "3" and extra == "all"',
            'sluicegate[server]; extra == "all"',
            "always-needed",
        ],
    )
    found = findings("extras")
    assert set(found) == {"pytest", "sg_no_such_package"}
    assert found["pytest"].present
    assert found["sg_no_such_package"].words == "not installed, for kv and all"
    assert found["sg_no_such_package"].get == "pip install '.[kv]'"

    def unknown(_: str) -> list[str]:
        raise importlib.metadata.PackageNotFoundError("sluicegate")

    monkeypatch.setattr(importlib.metadata, "requires", unknown)
    assert not findings("extras")["sluicegate"].present


def test_a_section_that_fails_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: str) -> Section:
        raise OSError("odd machine")

    monkeypatch.setattr(doctor, "SECTIONS", (("one", fail), *doctor.SECTIONS[:1]))
    one, other = doctor.examine()
    assert one.findings[0].words == "could not look: OSError: odd machine"
    assert other.findings[0].name == "sluicegate"


def test_a_machine_without_pressure_files_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "read_pressure", lambda: None)
    load = section("load")
    assert "this kernel does not show it" in load.findings[0].words
    assert doctor.missing([load]) == []


def test_text_and_json_say_the_same(
    program: Callable[[str, str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run() == 0
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert run("--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert f"{report['missing']} things are missing." in text
    for section in report["sections"].values():
        for finding in section["findings"]:
            assert finding["name"] in text
            if not finding["present"]:
                assert finding["get"] in text


def test_strict_is_for_those_who_want_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sections = [Section("tools", (Finding("spade", False, "none", "dig"),))]
    monkeypatch.setattr(doctor, "examine", lambda: sections)
    assert (run(), run("--strict")) == (0, 1)
    assert "1 thing is missing." in capsys.readouterr().out
    sections[:] = [Section("tools", (Finding("spade", True, "here", "dig"),))]
    assert run("--strict") == 0
    assert "Nothing is missing." in capsys.readouterr().out


def test_colour_is_for_terminals_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    sections = [Section("tools", (Finding("spade", True, "here"), Finding("rake", False, "none")))]
    assert "\x1b[32mok" in doctor.as_text(sections, colour=True)
    assert "\x1b" not in doctor.as_text(sections)

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert doctor._wants_colour(Terminal())
    assert not doctor._wants_colour(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not doctor._wants_colour(Terminal())


def test_missing_protection_of_image_workers_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(findings("image workers")) == set(PROTECTIONS)
    lacking = {"no-new-privs": "", "seccomp": "Unable to find libseccomp", "landlock": ""}

    def answer(*_: object, **__: object) -> CompletedProcess[bytes]:
        return CompletedProcess([], 0, json.dumps(lacking).encode())

    monkeypatch.setattr("sluicegate.apps.doctor.subprocess.run", answer)
    found = findings("image workers")
    assert found["landlock"].present
    assert not found["seccomp"].present
    assert "libseccomp" in found["seccomp"].words
    assert "libseccomp2" in found["seccomp"].get
    assert section("image workers").summary == "decoders of images run without seccomp"


def test_files_open_to_others_are_missing_a_chmod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, mode in (("key.pem", 0o644), ("callers.toml", 0o644)):
        path = tmp_path / name
        path.write_text("")
        path.chmod(mode)
    monkeypatch.setenv("SLUICEGATE_KV_TLS_KEY", f"{tmp_path}/key.pem")
    monkeypatch.setenv("SLUICEGATE_KV_ACCESS", f"{tmp_path}/callers.toml")
    section = next(one for one in doctor.examine() if one.title == "files")
    assert [(one.name, one.present, one.get) for one in section.findings] == [
        ("SLUICEGATE_KV_ACCESS", True, ""),
        ("SLUICEGATE_KV_TLS_KEY", False, f"chmod 600 {tmp_path}/key.pem"),
    ]
