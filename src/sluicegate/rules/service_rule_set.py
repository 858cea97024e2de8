"""Service rule set: all rules of a rate-limit service, from files of both formats, compiled as one.

A file is of Envoy's format or of ours by what it holds, not by its name. Everything that is wrong
with a file is reported at once, and a set is made of all files or of none.

A reload reads the files that have changed; the others are taken from the set before, so a change in
one of a hundred large files costs that file and the making of the indexes. JSON is YAML too, and is
read as what it is some thirty times faster: large files are best written as JSON.

Bounds: `files_max` files, `file_bytes_max` each, `rules_max` native rules, `shared_limits_max`
different limits in all, and the reader's own; folders are followed `DEPTH_MAX` deep.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Final, NamedTuple, final

from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.limits.rule import Rule
from sluicegate.rules.mesh.parser import Domain, is_mesh, parse_domain
from sluicegate.rules.mesh.rule import Semantics
from sluicegate.rules.mesh.rule_set import MeshRuleSet
from sluicegate.rules.parser import OLD_FORMAT, RULES_MAX, NativeFile, is_native, parse_native
from sluicegate.rules.plain_values import Read, form_of, read_bytes, read_text
from sluicegate.rules.problems import (
    PROBLEMS_MAX,
    BadRules,
    FieldPath,
    Problem,
    Problems,
    with_item_lines,
)
from sluicegate.rules.resources.compiler import compile_rules
from sluicegate.rules.resources.rule_set import ResourceRuleSet
from sluicegate.rules.shared_limits import SHARED_LIMITS_MAX_DEFAULT, SharedLimits
from sluicegate.wire.json_objects import parse_json

FILES_MAX: Final = 10_000
FILE_BYTES_MAX: Final = 16 << 20
DEPTH_MAX: Final = 8
VERSION_CHARS: Final = 12
ENVOY: Final = "envoy"
NATIVE: Final = "native"

MATCH_RULE_REMEDY: Final = (
    "a rule with `match` or `key` is for an application, which knows the whole request; "
    "for the service write resource_path, per, limit and window"
)
SUFFIXES: Final = (".yaml", ".yml", ".toml")


class RulesFile(NamedTuple):
    """A file of a rule set, for its status."""

    name: str  # below the folder it was found in
    format: str
    rules: int
    sha: str


class _RulesPath(NamedTuple):
    """Where a file is, and what it is called."""

    path: str
    name: str


@final
class ParsedFile:
    """What one file says."""

    __slots__ = ("domain", "native", "path", "rules", "sha", "shared_limits")

    def __init__(
        self,
        path: str,
        sha: str,
        domain: Domain | None,
        native: NativeFile | None,
        shared_limits: Mapping[str, Rule],
    ) -> None:
        self.path = path
        self.sha = sha
        self.domain = domain
        self.native = native
        self.shared_limits = shared_limits
        self.rules = (
            native.rules_count if native is not None else len(domain.rules) if domain else 0
        )

    def describe(self, name: str) -> RulesFile:
        """The file under the name it has below its folder."""
        kind = ENVOY if self.native is None else NATIVE
        return RulesFile(name, kind, self.rules, self.sha[:VERSION_CHARS])


@final
class ServiceRuleSet:
    """All rules in force; immutable.

    `rules` are the limits by their rule_ids in the limiter, for `replace_rules`. A set that was
    made of a snapshot has in `remade` what the next can be made of sooner.
    """

    def __init__(
        self,
        mesh: MeshRuleSet,
        resources: ResourceRuleSet,
        rules: Mapping[str, Rule],
        version: str,
        files: Sequence[RulesFile],
        parts: Sequence[ParsedFile] = (),
        settings: object = None,
        remade: object = None,
    ) -> None:
        self.mesh: Final = mesh
        self.resources: Final = resources
        self.rules: Final = rules
        self.version: Final = version
        self.files: Final = tuple(files)
        self._parts = {part.path: part for part in parts}
        self._settings = settings
        self.remade = remade

    def __len__(self) -> int:
        return sum(file.rules for file in self.files)

    @property
    def parts(self) -> Sequence[ParsedFile]:
        """What each file says; of a set that was made of a snapshot, nothing."""
        return tuple(self._parts.values())

    def rules_beside(self, before: ServiceRuleSet | None) -> dict[str, Rule]:
        """The limits of this set and of the one before it.

        A decision under way may still name one of the old, so a limiter knows both for one
        generation. A name says all there is to a limit, so one that is in both is the same.
        """
        return {**(before.rules if before is not None else {}), **self.rules}

    @classmethod
    def load(
        cls,
        paths: Sequence[str | os.PathLike[str]],
        *,
        semantics: Semantics | str = Semantics.SLUICEGATE,
        before: ServiceRuleSet | None = None,
        rules_max: int = RULES_MAX,
        shared_limits_max: int = SHARED_LIMITS_MAX_DEFAULT,
        files_max: int = FILES_MAX,
        file_bytes_max: int = FILE_BYTES_MAX,
        merge_domains: bool = False,
    ) -> ServiceRuleSet:
        """Read files, and all that folders hold.

        `BadRules` says what is wrong with one of them, `Unavailable` what could not be read.
        """
        settings = (Semantics(semantics), rules_max, shared_limits_max, file_bytes_max)
        unchanged = before._parts if before is not None and before._settings == settings else {}
        parts: list[ParsedFile] = []
        files: list[RulesFile] = []
        digest = sha256()
        for path, name in find_files(paths, files_max=files_max):
            data = read_bytes(path, file_bytes_max)
            sha = sha256(data).hexdigest()
            part = unchanged.get(path)
            if part is None or part.sha != sha:
                part, _ = read_rules_file(
                    path, sha, data, Semantics(semantics), rules_max, shared_limits_max
                )
            parts.append(part)
            files.append(part.describe(name))
            digest.update(f"{name}\0{sha}\n".encode("utf-8", "surrogateescape"))
        domains = [part.domain for part in parts if part.domain is not None]
        return cls(
            MeshRuleSet(domains, merge_domains=merge_domains),
            compile_native(parts, rules_max, lambda path: read_bytes(path, FILE_BYTES_MAX)),
            shared_limits_of(parts, shared_limits_max),
            digest.hexdigest()[:VERSION_CHARS],
            files,
            parts,
            settings,
        )


def find_files(
    paths: Sequence[str | os.PathLike[str]], *, files_max: int = FILES_MAX
) -> list[_RulesPath]:
    """The rules files that these are or hold, in the order of the paths and then of their names.

    In folders only what is named as YAML or TOML, and nothing that begins with a dot: editors leave
    such files, and Kubernetes keeps the real ones of a ConfigMap in such folders.
    """
    by_path: dict[str, _RulesPath] = {}
    for path in [os.fspath(path) for path in paths]:
        if not os.path.isdir(path):
            by_path.setdefault(path, _RulesPath(path, os.path.basename(path)))
            continue
        below = _below(path, "", 0, files_max)
        if not below:
            names = ", ".join(SUFFIXES)
            raise BadValue("rules", path, f"put a rules file there, named with {names} at the end")
        for one in below:
            by_path.setdefault(one.path, one)
    if len(by_path) > files_max:
        raise BadValue("rules", f"{len(by_path):,} files", f"at most {files_max:,} (files_max)")
    if not by_path:
        raise BadValue("rules", list(paths), "give at least one file or folder")
    return [*by_path.values()]


def _below(folder: str, within: str, depth: int, files_max: int) -> list[_RulesPath]:
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        words = error.strerror or str(error)
        raise Unavailable(f"the rules folder {folder}", words) from None
    paths: list[_RulesPath] = []
    for name in names:
        if name[0] in ".#~":
            continue
        path, describe = os.path.join(folder, name), f"{within}{name}"
        if os.path.isdir(path):
            if depth < DEPTH_MAX:
                paths += _below(path, f"{describe}/", depth + 1, files_max)
        elif name.lower().endswith(SUFFIXES):
            paths.append(_RulesPath(path, describe))
        if len(paths) > files_max:
            break
    return paths


# One file.


def read_rules_file(
    path: str, sha: str, data: bytes, semantics: Semantics, rules_max: int, shared_limits_max: int
) -> tuple[ParsedFile, object]:
    """What a file says, and the plain values of it; `BadRules` if anything in it is wrong."""
    failed: BadRules | RecursionError | None = None
    read = _read_json(data)
    if read is not None:
        try:
            return _parse_values(
                path, sha, read, semantics, rules_max, shared_limits_max
            ), read.value
        except (BadRules, RecursionError) as error:
            failed = error  # read it once more, for the lines
    try:
        read = read_text(data, form=form_of(path), source=path)
    except BadRules as error:
        # JSON has no bound on how many values there are, YAML has.
        raise failed if isinstance(failed, BadRules) else error from None
    return _parse_values(path, sha, read, semantics, rules_max, shared_limits_max), read.value


def _parse_values(
    path: str, sha: str, read: Read, semantics: Semantics, rules_max: int, shared_limits_max: int
) -> ParsedFile:
    value, lines = read.value, with_item_lines(read.lines)
    problems = Problems(path, lines)
    shared_limits = SharedLimits(shared_limits_max)
    domain, native = None, None
    if is_mesh(value):
        domain = parse_domain(
            value, problems, shared_limits, semantics, source=path, line=lines.get(("domain",), 0)
        )
    elif is_native(value):
        native = parse_native(value, problems, shared_limits, rules_max=rules_max)
        if native is not None:
            for rule in native.matching:
                problems.add(native.field_of(rule.rule_id), rule.rule_id, MATCH_RULE_REMEDY)
    else:
        problems.add((), value, _format_remedy(value))
    problems.raise_if_any()
    return ParsedFile(path, sha, domain, native, shared_limits.rules)


def _format_remedy(value: object) -> str:
    if isinstance(value, dict) and "limits" in value:
        return OLD_FORMAT
    return (
        "say `version: 1` and `rules:`, or a `domain:` and `descriptors:` "
        "as Envoy's rate-limit service has them"
    )


def _read_json(data: bytes) -> Read | None:
    """What the text says if it is JSON; None if it is not, or not plainly."""
    if data.lstrip()[:1] != b"{":
        return None
    try:
        return Read(parse_json(data, values_max=None), {})
    except BadValue:
        return None


# All of them.


def compile_native(
    parts: Sequence[ParsedFile], rules_max: int, data_of: Callable[[str], bytes]
) -> ResourceRuleSet:
    """The native half; `BadRules` says what is wrong between files, with lines from `data_of`."""
    own = [part for part in parts if part.native is not None]
    problems: list[tuple[int, FieldPath, object, str]] = []
    more = 0

    def complain(number: int, at: FieldPath, value: object, remedy: str) -> None:
        nonlocal more
        if len(problems) < PROBLEMS_MAX:
            problems.append((number, at, value, remedy))
        else:
            more += 1

    files = [part.native for part in own if part.native is not None]
    book = compile_rules(files, complain, rules_max=rules_max)
    if problems:
        raise _bad_rules([part.path for part in own], problems, more, data_of)
    return book


def _bad_rules(
    paths: Sequence[str],
    listed: Sequence[tuple[int, FieldPath, object, str]],
    more: int,
    data_of: Callable[[str], bytes],
) -> BadRules:
    """The error for what is wrong between files, told of the first file that has any of it."""
    path = paths[listed[0][0]]
    in_file = [one for one in listed if paths[one[0]] == path]
    try:
        lines = read_text(data_of(path), form=form_of(path), source=path).lines
    except (BadValue, Unavailable):
        lines = {}  # it has gone meanwhile, or is JSON of more values than YAML may have
    problems = Problems(path, with_item_lines(lines))
    for _, at, value, remedy in in_file:
        problems.add(at, value, remedy)
    try:
        problems.raise_if_any()
    except BadRules as error:
        return BadRules(error.source, error.problems, more + len(listed) - len(in_file))
    raise AssertionError("a refusal has a problem")


def shared_limits_of(parts: Sequence[ParsedFile], shared_limits_max: int) -> dict[str, Rule]:
    """The different limits of all files."""
    rules: dict[str, Rule] = {}
    for part in parts:
        rules.update(part.shared_limits)
        if len(rules) > shared_limits_max:
            remedy = f"say at most {shared_limits_max:,} (shared_limits_max)"
            describe = f"{len(rules):,} different limits"
            raise BadRules(part.path, [Problem("rules", describe, remedy)])
    return rules
