"""Snapshot: all that a commit's rules files say, immutable, and the same however it came to be.

What a file says besides its native rules travels as canonical JSON, whole, so that what one version
of this program adds to the format is not lost on the way. Native rules are records in pages (see
`resources/pages.py`). What they say, and the defaults of their file with it, is a *kind*: its text
is kept once, and records name it by its *mark*, the digest of the text. So nothing depends on the
order in which things were learned, a change of one rule changes one page, and what two commits have
in common they share.

`content` is the digest of the outline (settings, files, forms), of the heads of the files and of
all pages. The digest of each of these is kept, so that of a changed snapshot follows from what has
changed.

The files of a commit are those that `ServiceRuleSet.load` would find in a folder that holds them;
they are read, checked and described as it does. This file is not compiled: a million rules take a
while, and other threads must run meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, cast, final

from sluicegate.contracts.errors import BadValue
from sluicegate.rules.mesh.rule import Semantics
from sluicegate.rules.mesh.rule_set import MeshRuleSet
from sluicegate.rules.parser import RULES_MAX, rules_as_list
from sluicegate.rules.problems import BadRules, Problem
from sluicegate.rules.resources.packed import Forms
from sluicegate.rules.service_rule_set import (
    DEPTH_MAX,
    FILE_BYTES_MAX,
    FILES_MAX,
    NATIVE,
    SUFFIXES,
    ParsedFile,
    RulesFile,
    compile_native,
    read_rules_file,
    shared_limits_of,
)
from sluicegate.rules.shared_limits import SHARED_LIMITS_MAX_DEFAULT
from sluicegate.rules.snapshot.collector import RuleCollector
from sluicegate.rules.snapshot.digests import canonical, digest_of, page_digest

CONTENT_FORM: Final = b"sluicegate rules 1\n"

_HIDDEN: Final = (".", "#", "~")


@final
class RulesSnapshot:
    """What the rules are.

    `heads` is what each file says besides its native rules, `kinds` the texts of the kinds by their
    marks, `uses` how many rules have each, `forms` how many rules each form of a path has: for any
    client, and for some.
    """

    def __init__(
        self,
        *,
        semantics: Semantics,
        merge_domains: bool,
        files: Sequence[RulesFile],
        heads: Sequence[bytes],
        kinds: Mapping[bytes, bytes],
        uses: Mapping[bytes, int],
        forms: Forms,
        pages: Sequence[bytes],
        digests: Sequence[bytes],
        head_digests: Sequence[bytes] | None = None,
    ) -> None:
        self.semantics: Final = semantics
        self.merge_domains: Final = merge_domains
        self.files: Final = tuple(files)
        self.heads: Final = tuple(heads)
        self.kinds: Final = kinds
        self.uses: Final = uses
        self.forms: Final = forms
        self.pages: Final = tuple(pages)
        self.digests: Final = tuple(digests)
        self.head_digests: Final = tuple(
            [sha256(head).digest() for head in heads] if head_digests is None else head_digests
        )
        self.rules: Final = sum(file.rules for file in files)
        self.native: Final = sum(file.rules for file in files if file.format == NATIVE)
        digest = sha256(CONTENT_FORM)
        digest.update(digest_of(self.outline()))
        digest.update(b"".join(self.head_digests))
        digest.update(digest_of(b"".join(self.digests)))
        self.content: Final = digest.hexdigest()

    def outline(self) -> bytes:
        """What is said once: settings, files, forms."""
        forms = [[*form, *self.forms[form]] for form in sorted(self.forms)]
        return canonical(
            {
                "semantics": self.semantics.value,
                "merge_domains": self.merge_domains,
                "files": [list(file) for file in self.files],
                "forms": forms,
            }
        )

    def __repr__(self) -> str:
        return f"<Snapshot of {self.rules:,} rules, {self.content[:12]}>"


def compile_snapshot(
    files: Mapping[str, bytes],
    *,
    semantics: Semantics = Semantics.SLUICEGATE,
    rules_max: int = RULES_MAX,
    shared_limits_max: int = SHARED_LIMITS_MAX_DEFAULT,
    files_max: int = FILES_MAX,
    file_bytes_max: int = FILE_BYTES_MAX,
    merge_domains: bool = False,
    before: RulesSnapshot | None = None,
) -> RulesSnapshot:
    """What these files say, by their names below the folder of the rules.

    `BadRules` says what is wrong with one of them. What has not changed since `before` is shared
    with it.
    """
    names = rules_files(files)
    if len(names) > files_max:
        raise BadValue("rules", f"{len(names):,} files", f"at most {files_max:,} (files_max)")
    if not names:
        raise BadValue("rules", [*files][:8], f"give a file named with {', '.join(SUFFIXES)}")
    collector = RuleCollector()
    parts: list[ParsedFile] = []
    described: list[RulesFile] = []
    heads: list[bytes] = []
    for name in names:
        data = files[name]
        if len(data) > file_bytes_max:
            remedy = f"it is larger than {file_bytes_max:,} bytes; make it smaller"
            raise BadRules(name, [Problem("", name, remedy)])
        sha = sha256(data).hexdigest()
        part, value = read_rules_file(name, sha, data, semantics, rules_max, shared_limits_max)
        parts.append(part)
        described.append(part.describe(name))
        heads.append(_head(name, part, cast("dict[str, Any]", value), collector))
    domains = [part.domain for part in parts if part.domain is not None]
    MeshRuleSet(domains, merge_domains=merge_domains)
    compile_native(parts, rules_max, files.__getitem__)
    shared_limits_of(parts, shared_limits_max)
    try:
        pages, kinds, uses, forms = collector.end()
    except ValueError as error:
        raise _cannot_pack(names[-1], error) from None
    digests: list[bytes] = []
    for place, page in enumerate(pages):
        if before is not None and before.pages[place] == page:
            pages[place] = before.pages[place]
            digests.append(before.digests[place])
        else:
            digests.append(page_digest(page))
    return RulesSnapshot(
        semantics=semantics,
        merge_domains=merge_domains,
        files=described,
        heads=heads,
        kinds=kinds,
        uses=uses,
        forms=forms,
        pages=pages,
        digests=digests,
    )


def rules_files(files: Mapping[str, bytes]) -> list[str]:
    """The names of those that hold rules, in the order in which a folder of them is read."""
    names = [
        name
        for name in files
        if name.lower().endswith(SUFFIXES)
        and name.count("/") <= DEPTH_MAX
        and not any(part.startswith(_HIDDEN) or not part for part in name.split("/"))
    ]
    return sorted(names, key=_in_folders)


def _in_folders(name: str) -> list[str]:
    return name.split("/")


def _head(name: str, part: ParsedFile, value: dict[str, Any], collector: RuleCollector) -> bytes:
    """What a file says besides its native rules, which go to `gather`."""
    head = value
    if part.native is not None:
        head = {field: value[field] for field in value if field != "rules"}
        try:
            collector.add(head, rules_as_list(value.get("rules")), part.native)
        except ValueError as error:
            raise _cannot_pack(name, error) from None
    try:
        return canonical(head)
    except (TypeError, ValueError) as error:
        raise _cannot_pack(name, error, "; write dates and times in quotes") from None


def _cannot_pack(name: str, error: Exception, more: str = "") -> BadRules:
    return BadRules(name, [Problem("", name, f"this cannot be put into a snapshot: {error}{more}")])
