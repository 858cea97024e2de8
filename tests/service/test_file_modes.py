"""File modes: files that other users may read or change are named, once, with their fix."""

from __future__ import annotations

import logging
import os
import signal
from argparse import ArgumentParser
from pathlib import Path

import pytest

from sluicegate.apps.limiter.settings import LimiterSettings
from sluicegate.service.command import add_service_flags, settings_to_serve
from sluicegate.service.file_modes import FileModes, GuardedFile, loose_file
from tests.apps.kv.process import access_file
from tests.apps.limiter.process import NATIVE, LimiterProcess, rules_file
from tests.engines.child import until


def made(folder: Path, mode: int) -> str:
    path = folder / "a key.pem"
    path.write_text("x")
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize(
    ("mode", "secret", "words"),
    [
        (0o600, True, ""),
        (0o400, True, ""),
        (0o640, True, "mode 0640 lets other users read it; chmod 600"),
        (0o644, True, "mode 0644 lets other users read it; chmod 600"),
        (0o666, True, "mode 0666 lets other users change it; chmod 600"),
        (0o644, False, ""),
        (0o664, False, ""),
        (0o666, False, "mode 0666 lets other users change it; chmod o-w"),
    ],
)
def test_loose_file_is_named_with_its_fix(
    tmp_path: Path, mode: int, secret: bool, words: str
) -> None:
    path = made(tmp_path, mode)
    loose = loose_file(GuardedFile("--tls-key", path, secret))
    assert ("" if loose is None else str(loose)) == (
        f"--tls-key {path}: {words} '{path}'" if words else ""
    )


@pytest.mark.parametrize(("mode", "loose"), [(0o640, False), (0o440, False), (0o644, True)])
def test_group_may_read_key_of_another_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, loose: bool
) -> None:
    path = made(tmp_path, mode)
    monkeypatch.setattr(os, "geteuid", lambda: os.stat(path).st_uid + 1)
    found = loose_file(GuardedFile("--tls-key", path, True))
    assert (found is not None) == loose
    assert found is None or found.fix == f"chmod 640 '{path}'"


def test_missing_file_and_folder_are_not_loose(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        assert loose_file(GuardedFile("--tls-key", str(path), True)) is None


def test_loose_file_is_logged_once_until_its_mode_changes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = made(tmp_path, 0o644)
    modes, files = FileModes(), (GuardedFile("--tls-key", path, True),)
    counts = []
    for mode in (0o644, 0o644, 0o666, 0o600, 0o644):
        Path(path).chmod(mode)
        modes.check(files)
        counts.append(len(caplog.records))
    assert counts == [1, 1, 2, 2, 3]


def test_settings_file_with_secret_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    parser = ArgumentParser()
    add_service_flags(parser, LimiterSettings)
    for name, text, warnings in (("a.toml", 'log = "info"', 0), ("b.toml", "", 1)):
        path = tmp_path / name
        path.write_text(text or f'token = "{"t" * 40}"')
        path.chmod(0o644)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            settings_to_serve(LimiterSettings, parser.parse_args(["--config", str(path)]), {})
        assert [f"chmod 600 {path}" in one.message for one in caplog.records] == [True] * warnings


def test_service_warns_at_start_and_on_reload(tmp_path: Path) -> None:
    callers = Path(access_file(tmp_path, {"ann": 'grants = ["check"]'}))
    callers.chmod(0o666)
    flags = ("--rules", rules_file(tmp_path, NATIVE), "--access", str(callers))
    with LimiterProcess(tmp_path, *flags) as limiter:
        fix = f"chmod o-w {callers}"
        assert limiter.log.read_text().count(fix) == 1
        callers.chmod(0o662)
        limiter.signal(signal.SIGHUP)
        until(lambda: limiter.log.read_text().count(fix) == 2, "the second warning")
        assert "mode 0662" in limiter.log.read_text()
