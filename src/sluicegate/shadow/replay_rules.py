"""Replay rules: the rules of one side of a replay, made from the files of a commit.

They are compiled as for an edition, so what is replayed is what nodes would run. What is not named
as a rules file is passed over. No file at all is a rule set too: it admits everything, as a service
without rules does.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Final, final

from sluicegate.contracts.rulebook import Files
from sluicegate.rules.mesh.rule import Semantics
from sluicegate.rules.mesh.rule_set import MeshRuleSet
from sluicegate.rules.parser import RULES_MAX, rules_as_list
from sluicegate.rules.resources.rule_set import EMPTY_RULE_SET
from sluicegate.rules.service_rule_set import (
    VERSION_CHARS,
    ParsedFile,
    ServiceRuleSet,
    read_rules_file,
)
from sluicegate.rules.shared_limits import SHARED_LIMITS_MAX_DEFAULT
from sluicegate.rules.snapshot.book import book_of
from sluicegate.rules.snapshot.snapshot import compile_snapshot, rules_files

_SHADOW: Final = "shadow"
_ENFORCED: Final = "enforce"


@final
class ReplayRules:
    """The rules of one side: files, and the rule set they make.

    With `trials_enforced` what the files only try out (`mode: shadow`) is enforced instead: what
    these rules would refuse if they went live.
    """

    def __init__(
        self,
        files: Files,
        *,
        semantics: Semantics | str = Semantics.SLUICEGATE,
        merge_domains: bool = False,
        trials_enforced: bool = False,
    ) -> None:
        selected = {name: files[name] for name in rules_files(files)}
        if trials_enforced:
            selected = {
                name: enforce_trials(name, data, semantics) for name, data in selected.items()
            }
        self.files: Final[Files] = selected
        self.semantics: Final = Semantics(semantics)
        self.merge_domains: Final = merge_domains
        self.book: Final = _book(selected, self.semantics, merge_domains)

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
    return read_rules_file(
        name, sha, data, Semantics(semantics), RULES_MAX, SHARED_LIMITS_MAX_DEFAULT
    )


def enforce_trials(name: str, data: bytes, semantics: Semantics | str) -> bytes:
    """The same file with what it tries out enforced; the bytes themselves where that is nothing."""
    part, value = read_file(name, data, semantics)
    if part.native is not None and isinstance(value, dict):
        value = {**value, "rules": rules_as_list(value.get("rules"))}  # no rule's name is a field
    changed, found = _enforce(value)
    return json.dumps(changed).encode() if found else data


def _enforce(value: object) -> tuple[object, bool]:
    if isinstance(value, list):
        several = [_enforce(one) for one in value]
        return [one for one, _ in several], any(found for _, found in several)
    if not isinstance(value, dict):
        return value, False
    changed: dict[object, object] = {}
    any_found = False
    for key, one in value.items():
        if key == "mode" and one == _SHADOW:
            changed[key], found = _ENFORCED, True
        elif key == "shadow_mode" and one is True:
            changed[key], found = False, True
        elif key == "metadata":
            changed[key], found = one, False  # a file's own words, whatever they are
        else:
            changed[key], found = _enforce(one)
        any_found = any_found or found
    return changed, any_found


def _book(files: Files, semantics: Semantics, merge_domains: bool) -> ServiceRuleSet:
    if not files:
        return ServiceRuleSet(MeshRuleSet(), EMPTY_RULE_SET, {}, "", ())
    snapshot = compile_snapshot(files, semantics=semantics, merge_domains=merge_domains)
    return book_of(snapshot, version=snapshot.content[:VERSION_CHARS])
