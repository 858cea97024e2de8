"""The inputs of a what-if: rulebooks from files, and captured or imported traffic.

A redacted capture is read with its key, and with all texts that any of the rulebooks names, so that
each of them finds what it matches.
"""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.rulebook import Files
from sluicegate.lab.what_if.runs import BOOKS_MAX, NamedRules
from sluicegate.rules.plain_values import read_bytes
from sluicegate.rules.service_rule_set import FILE_BYTES_MAX, find_files
from sluicegate.shadow.capture.key import CaptureKey, read_key
from sluicegate.shadow.capture.reader import read_capture
from sluicegate.shadow.imports.envoy import EnvoyFields, import_envoy, parse_fields
from sluicegate.shadow.imports.importer import collect
from sluicegate.shadow.imports.rows import Rows
from sluicegate.shadow.imports.tables import import_csv, import_jsonl
from sluicegate.shadow.literals import vocabulary_of
from sluicegate.shadow.replay_rules import ReplayRules
from sluicegate.shadow.traffic import CapturedTraffic

NONE: Final = "none"
DAMAGE_SHOWN: Final = 10

# Called with how much is read, of how much.
Progress: TypeAlias = Callable[[int, int], None]


class RecordedTraffic(NamedTuple):
    """Traffic, and what must be known about it in sentences."""

    captured: CapturedTraffic
    notes: tuple[str, ...] = ()


def read_books(paths: Sequence[str], *, semantics: str, merge_domains: bool) -> list[NamedRules]:
    """Read the rulebooks of `--rules`: each is a folder, a file, or none."""
    if not 1 <= len(paths) <= BOOKS_MAX:
        remedy = f"give it 1 to {BOOKS_MAX} times: a folder or a file of rules, or none"
        raise BadValue("--rules", f"{len(paths)} times", remedy)
    names = _names(paths)
    books: list[NamedRules] = []
    for path, name in zip(paths, names, strict=True):
        files = _files(path)
        rules = ReplayRules(files, semantics=semantics, merge_domains=merge_domains)
        if files and rules.empty:
            raise BadValue("--rules", path, "name a rules file with .yaml, .yml or .toml")
        books.append(NamedRules(name, rules))
    return books


def read_traffic(
    arguments: Namespace, books: Sequence[NamedRules], *, requests_max: int, progress: Progress
) -> RecordedTraffic:
    """Read what one of `--capture`, `--csv`, `--jsonl` and `--envoy-log` names."""
    given = {
        "--capture": arguments.capture,
        "--envoy-log": arguments.envoy_log,
        "--csv": arguments.csv,
        "--jsonl": arguments.jsonl,
    }
    several = [flag for flag, value in given.items() if value]
    if len(several) != 1:
        remedy = "give captured traffic once: --capture DIR, or --envoy-log, --csv or --jsonl FILE"
        raise BadValue("--capture", " and ".join(several) or "nothing", remedy)
    if arguments.map and not arguments.envoy_log:
        raise BadValue("--map", arguments.map[0], "leave it out; it is of --envoy-log")
    if arguments.key and not arguments.capture:
        raise BadValue("--key", arguments.key, "leave it out; it is of --capture")
    if arguments.capture:
        traffic = _read_captured(arguments, books, requests_max, progress)
    else:
        traffic = RecordedTraffic(collect(_rows(arguments, progress), requests_max=requests_max))
    if not len(traffic.captured):
        why = f": {traffic.notes[0]}" if traffic.notes else ""
        (flag,) = several
        raise BadValue(flag, given[flag], f"there is no request in it{why}")
    return traffic


def _read_captured(
    arguments: Namespace, books: Sequence[NamedRules], requests_max: int, progress: Progress
) -> RecordedTraffic:
    if not os.path.exists(arguments.capture):
        raise BadValue("--capture", arguments.capture, "give a folder of a capture, or a file")
    key = _key(arguments.capture, arguments.key)
    vocabulary = vocabulary_of([book.rules.files for book in books], key)
    read = read_capture(
        arguments.capture,
        key=key,
        vocabulary=vocabulary,
        requests_max=requests_max,
        progress=progress,
    )
    notes = [f"Damaged: {sentence}." for sentence in read.damage[:DAMAGE_SHOWN]]
    if read.unmatched_globs:
        patterns = ", ".join([f"{key}={glob}" for key, glob in read.unmatched_globs[:DAMAGE_SHOWN]])
        notes.append(f"These patterns cannot match what was redacted: {patterns}.")
    return RecordedTraffic(read.traffic, tuple(notes))


def _key(capture: str, path: str) -> CaptureKey | None:
    """The named key; else the one beside the capture, if there is one."""
    if path:
        try:
            return read_key(path)
        except FileNotFoundError:
            raise BadValue("--key", path, "give the file of the capture's key") from None
    folder = capture.rstrip("/") if os.path.isdir(capture) else os.path.dirname(capture)
    beside = f"{folder}.key"
    return read_key(beside) if os.path.exists(beside) else None


def _rows(arguments: Namespace, progress: Progress) -> Rows:
    if arguments.envoy_log:
        return import_envoy(
            arguments.envoy_log,
            EnvoyFields(**parse_fields(arguments.map, "--map")),  # type: ignore[arg-type] # texts
            progress=progress,
        )
    if arguments.csv:
        return import_csv(arguments.csv, progress=progress)
    return import_jsonl(arguments.jsonl, progress=progress)


def _names(paths: Sequence[str]) -> list[str]:
    """Names of the rulebooks: the ends of their paths, or whole paths where ends agree."""
    ends = [os.path.basename(path.rstrip("/")) or path for path in paths]
    if len({*ends}) < len(ends):
        ends = [path.rstrip("/") or path for path in paths]
    names: list[str] = []
    for end in ends:
        same = names.count(end) + sum(name.startswith(f"{end} (") for name in names)
        names.append(f"{end} ({same + 1})" if same else end)
    return names


def _files(path: str) -> Files:
    """The rules files of one rulebook; an empty folder is a service without rules, too."""
    if path == NONE or (os.path.isdir(path) and not os.listdir(path)):
        return {}
    if not os.path.exists(path):
        raise BadValue("--rules", path, "give a folder or a file that is there, or none")
    return {name: read_bytes(at, FILE_BYTES_MAX) for at, name in find_files([path])}
