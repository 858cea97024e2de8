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

from headgate.apps.rulebook.assembly import Assembly
from headgate.apps.rulebook.settings import FILE_NAME, Settings, read_settings
from headgate.apps.rulebook.showing import tell_troubles, write
from headgate.apps.rulebook.texts import texts_of
from headgate.contracts.access import EVERY_GRANT, Identity
from headgate.contracts.errors import BadValue, Unavailable
from headgate.contracts.rule_desk import Answer
from headgate.lines import counted
from headgate.rules.editions.signing import PRIVATE_NAME, new_key
from headgate.rules.repository.repository import Repository
from headgate.rules.snapshot.snapshot import compile_snapshot
from headgate.shadow.capture_key import open_key

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
# A rulebook of headgate. Every setting, with its default: headgate rules serve --print-config
repository = "rules.git"
branch = "main"
blobs = {blobs}
events = {events}
signing_key = "keys/signing.pem"
capture = "capture"
capture_key = "capture.key"
own_approval = {alone}
"""


def run(arguments: Namespace) -> int:
    """Make it, with its first version."""
    folder = arguments.folder
    texts = texts_of(arguments.rules, under="") if arguments.rules else {_STARTER: _NO_RULES}
    files = {name: text for name, text in texts.items() if text is not None}
    compile_snapshot(_encoded(files))  # what is wrong is told before anything is made
    # An earlier command may have been interrupted; whatever it has made is taken as it is.
    begun = os.path.exists(os.path.join(folder, _REPOSITORY))
    if not os.path.exists(os.path.join(folder, FILE_NAME)):
        try:
            _make(arguments, files, begun=begun)
        except FileExistsError as error:
            remedy = f"{error.filename} is there already and is no folder; give another DIR"
            raise BadValue("DIR", folder, remedy) from None
        except OSError as error:
            raise Unavailable(f"the folder {folder}", error.strerror or str(error)) from None
    settings, _ = read_settings(folder)
    said, count = _begin(settings, files if begun and arguments.rules else None)
    write(
        f"a rulebook is in {folder}: version {said['live']['version']}, "
        f"{counted(count, 'file')} of rules",
        "",
        "let a limiter follow it:",
        f"  headgate limiter --rulebook {_quoted(settings.blobs)} \\",
        f"      --rulebook-keys {_quoted(os.path.join(folder, 'keys', 'signing.pub.pem'))} \\",
        f"      --rulebook-events {_quoted(settings.events)} \\",
        f"      --capture {_quoted(settings.capture)}",
        "change it:",
        f'  headgate rules propose --rulebook {_quoted(folder)} FILE -m "what changes"',
        f"  git clone {_quoted(settings.repository)}    and push: a push is a proposal",
    )
    tell_troubles(said)
    return int(bool(said["troubles"]))


def _begin(settings: Settings, files: Mapping[str, str] | None) -> tuple[Answer, int]:
    """The first version is live: the status, and how many files it has."""
    assembly = Assembly(settings)
    try:
        by = Identity(getpass.getuser(), EVERY_GRANT)
        if assembly.desk.versions(count_max=1, by=by):
            remedy = f"there is a rulebook in it already ({FILE_NAME})"
            raise BadValue("DIR", settings.folder, remedy)
        said = assembly.desk.begin(files, message=_MESSAGE, by=by)
        return said, len(assembly.desk.rules(by=by)["files"])
    finally:
        assembly.close()


def _make(arguments: Namespace, files: Mapping[str, str], *, begun: bool) -> None:
    folder = arguments.folder
    os.makedirs(folder, mode=0o700, exist_ok=True)
    for name in _FOLDERS:
        os.makedirs(os.path.join(folder, name), mode=0o700, exist_ok=True)
    keys = os.path.join(folder, "keys")
    if not os.path.exists(os.path.join(keys, PRIVATE_NAME)):
        new_key(keys)
    open_key(os.path.join(folder, "capture.key"))
    if not begun:
        where = os.path.join(folder, _REPOSITORY)
        Repository.create(where, files=_encoded(files), message=_MESSAGE).close()
    # Last, since it is what makes a folder a rulebook.
    with open(os.path.join(folder, FILE_NAME), "x", encoding="utf-8") as file:
        file.write(
            _SETTINGS.format(
                blobs=json.dumps(arguments.blobs),
                events=json.dumps(arguments.events),
                alone="true" if arguments.alone else "false",
            )
        )


def _encoded(files: Mapping[str, str]) -> dict[str, bytes]:
    return {name: text.encode() for name, text in files.items()}


def _quoted(word: str) -> str:
    """As a shell reads it."""
    return shlex.quote(word)
