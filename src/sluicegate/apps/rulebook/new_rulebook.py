"""Init: make a rulebook that can be used at once.

rulebook.toml   what it is told; paths count from here
rules.git       the rules, a bare git repository
blobs/          what nodes fetch
events/         where changes are announced
keys/           signing.pem (secret), signing.pub.pem (for the nodes)
capture/        traffic that changes are tried on, and beside it capture.key (secret)
"""

from __future__ import annotations

import getpass
import json
import os
import shlex
from argparse import Namespace
from collections.abc import Mapping
from typing import Final

from sluicegate.apps.rulebook.assembly import Assembly
from sluicegate.apps.rulebook.output import print_failures, write
from sluicegate.apps.rulebook.rules_files import texts_of
from sluicegate.apps.rulebook.settings import FILE_NAME, RulebookSettings, read_settings
from sluicegate.command_line.text import counted
from sluicegate.contracts.access import EVERY_GRANT, Identity
from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.contracts.rule_admin import Answer
from sluicegate.rules.releases.signatures import PRIVATE_NAME, new_key
from sluicegate.rules.repository.repository import Repository
from sluicegate.rules.snapshot.snapshot import compile_snapshot
from sluicegate.shadow.capture.key import open_key

_MESSAGE: Final = "Begin the rulebook"
_FOLDERS: Final = ("blobs", "events", "capture")
_REPOSITORY: Final = "rules.git"
_STARTER: Final = "limits.yaml"
_NO_RULES: Final = """\
# Rules for paths. A rule looks like this:
#   - {rule_id: api, resource_path: /api/*, limit: 100, window: 1m}
version: 1
rules: []
"""
_SETTINGS: Final = """\
# A rulebook of sluicegate. Every setting, with its default: sluicegate rules serve --print-config
repository = {repository}
branch = {branch}
blobs = {blobs}
events = {events}
signing_key = "keys/signing.pem"
capture = "capture"
capture_key = "capture.key"
own_approval = {alone}
"""

_Texts = Mapping[str, str]


def init(arguments: Namespace) -> int:
    """Make it, with its first version."""
    folder = arguments.folder
    files = _initial_files(arguments)
    # An earlier command may have been interrupted; whatever it has made is taken as it is.
    exists = bool(arguments.repository) or os.path.exists(os.path.join(folder, _REPOSITORY))
    if not os.path.exists(os.path.join(folder, FILE_NAME)):
        try:
            _make(arguments, None if exists else files)
        except FileExistsError as error:
            if os.path.basename(error.filename) == FILE_NAME:  # another command was faster
                raise _already(folder) from None
            remedy = f"{error.filename} is there already and is no folder; give another DIR"
            raise BadValue("DIR", folder, remedy) from None
        except OSError as error:
            raise Unavailable(f"the folder {folder}", error.strerror or str(error)) from None
    settings = read_settings(folder).settings
    status, count = _begin(settings, files if exists and arguments.rules else None)
    version = f"version {status['live']['version']}, {counted(count, 'file')} of rules"
    write(f"a rulebook is in {folder}: {version}", "", *_hints(settings))
    print_failures(status)
    return int(bool(status["troubles"]))


def _initial_files(arguments: Namespace) -> _Texts:
    """The files to begin with. What is wrong with them is told before anything is made."""
    if arguments.repository:
        Repository.open(arguments.repository).close()
    texts = texts_of(arguments.rules, under="") if arguments.rules else {_STARTER: _NO_RULES}
    files = {name: text for name, text in texts.items() if text is not None}
    compile_snapshot(_encode(files))
    return files


def _begin(settings: RulebookSettings, files: _Texts | None) -> tuple[Answer, int]:
    """The first version is live: the status, and how many files it has."""
    assembly = Assembly(settings)
    try:
        by = Identity(getpass.getuser(), EVERY_GRANT)
        if assembly.admin.versions(count_max=1, by=by):
            raise _already(settings.folder)
        status = assembly.admin.begin(files, message=_MESSAGE, by=by)
        return status, len(assembly.admin.rules(by=by)["files"])
    finally:
        assembly.close()


def _already(folder: str) -> BadValue:
    return BadValue("DIR", folder, f"there is a rulebook in it already ({FILE_NAME})")


def _make(arguments: Namespace, files: _Texts | None) -> None:
    """The folder and what is in it; its repository of these files, unless there is one."""
    folder = arguments.folder
    os.makedirs(folder, mode=0o700, exist_ok=True)
    for name in _FOLDERS:
        os.makedirs(os.path.join(folder, name), mode=0o700, exist_ok=True)
    keys = os.path.join(folder, "keys")
    if not os.path.exists(os.path.join(keys, PRIVATE_NAME)):
        new_key(keys)
    open_key(os.path.join(folder, "capture.key"))
    if files is not None:
        where = os.path.join(folder, _REPOSITORY)
        made = Repository.create(
            where, branch=arguments.branch, files=_encode(files), message=_MESSAGE
        )
        made.close()
    repository = os.path.abspath(arguments.repository) if arguments.repository else ""
    # Last, since it is what makes a folder a rulebook.
    with open(os.path.join(folder, FILE_NAME), "x", encoding="utf-8") as file:
        file.write(
            _SETTINGS.format(
                repository=json.dumps(repository or _REPOSITORY),
                branch=json.dumps(arguments.branch),
                blobs=json.dumps(arguments.blobs),
                events=json.dumps(arguments.events),
                alone="true" if arguments.alone else "false",
            )
        )


def _encode(files: _Texts) -> dict[str, bytes]:
    return {name: text.encode() for name, text in files.items()}


def _hints(settings: RulebookSettings) -> list[str]:
    """How to go on, as lines for a shell."""
    quoted = shlex.quote
    public = os.path.join(settings.folder, "keys", "signing.pub.pem")
    events = [f"      --rulebook-events {quoted(settings.events)} \\"] if settings.events else []
    return [
        "let a limiter follow it:",
        f"  sluicegate limiter --rulebook {quoted(settings.blobs)} \\",
        f"      --rulebook-keys {quoted(public)} \\",
        *events,
        f"      --capture {quoted(settings.capture)}",
        "change it:",
        f'  sluicegate rules propose --rulebook {quoted(settings.folder)} FILE -m "what changes"',
        f"  git clone {quoted(settings.repository)}    and push: a push is a proposal",
    ]
