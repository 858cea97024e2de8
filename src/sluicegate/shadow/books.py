"""Books: the rules of one side of a replay, made from the files of a commit.

They are compiled as for an edition, so what is replayed is what nodes would run. What is not named
as a rules file is passed over. No file at all is a book too: it admits everything, as a service
without rules does.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Final, final

from sluicegate.contracts.rulebook import Files
from sluicegate.rules.mesh.rule import Semantics
from sluicegate.rules.mesh.rule_set import MeshRuleSet
from sluicegate.rules.resources.parser import RULES_MAX
from sluicegate.rules.resources.rule_set import EMPTY_RULE_SET
from sluicegate.rules.service_rule_set import VERSION_CHARS, ParsedFile, ServiceRuleSet, read_part
from sluicegate.rules.shared_limits import SHARED_LIMITS_MAX_DEFAULT
from sluicegate.rules.snapshot.book import book_of
from sluicegate.rules.snapshot.snapshot import compile_snapshot, rules_files

_TRIED: Final = "shadow"
_ENFORCED: Final = "enforce"


@final
class Rules:
    """The rules of one side: files, and the book they make.

    With `trials_enforced` what the files only try out (`mode: shadow`) is enforced instead: the
    answer to what these rules would refuse if they went live.
    """

    __slots__ = ("book", "files", "merge_domains", "semantics")

    def __init__(
        self,
        files: Files,
        *,
        semantics: Semantics | str = Semantics.SLUICEGATE,
        merge_domains: bool = False,
        trials_enforced: bool = False,
    ) -> None:
        kept = {name: files[name] for name in rules_files(files)}
        if trials_enforced:
            kept = {name: enforced(name, data, semantics) for name, data in kept.items()}
        self.files: Final[Files] = kept
        self.semantics: Final = Semantics(semantics)
        self.merge_domains: Final = merge_domains
        self.book: Final = _book(kept, self.semantics, merge_domains)

    @property
    def empty(self) -> bool:
        """Whether there are no rules files at all."""
        return not self.files


def is_rules_file(name: str) -> bool:
    """Whether the service would read it as one."""
    return bool(rules_files({name: b""}))


def read_file(name: str, data: bytes, semantics: Semantics | str) -> tuple[ParsedFile, object]:
    """What a file says, and its plain values; read as the service reads it."""
    sha = sha256(data).hexdigest()
    return read_part(name, sha, data, Semantics(semantics), RULES_MAX, SHARED_LIMITS_MAX_DEFAULT)


def enforced(name: str, data: bytes, semantics: Semantics | str) -> bytes:
    """The same file with what it tries out enforced; the bytes themselves where that is nothing."""
    _, value = read_file(name, data, semantics)
    changed, found = _enforced(value)
    return json.dumps(changed).encode() if found else data


def _enforced(value: object) -> tuple[object, bool]:
    if isinstance(value, list):
        several = [_enforced(one) for one in value]
        return [one for one, _ in several], any(found for _, found in several)
    if not isinstance(value, dict):
        return value, False
    made: dict[object, object] = {}
    any_found = False
    for key, said in value.items():
        if key == "mode" and said == _TRIED:
            made[key], found = _ENFORCED, True
        elif key == "shadow_mode" and said is True:
            made[key], found = False, True
        elif key == "metadata":
            made[key], found = said, False  # a file's own words, whatever they are
        else:
            made[key], found = _enforced(said)
        any_found = any_found or found
    return made, any_found


def _book(files: Files, semantics: Semantics, merge_domains: bool) -> ServiceRuleSet:
    if not files:
        return ServiceRuleSet(MeshRuleSet(), EMPTY_RULE_SET, {}, "", ())
    snapshot = compile_snapshot(files, semantics=semantics, merge_domains=merge_domains)
    return book_of(snapshot, version=snapshot.content[:VERSION_CHARS])
