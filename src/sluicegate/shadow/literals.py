"""Literals: every text that rules name, so that redacted traffic can be tried on them.

A capture holds tokens in the place of values. Whoever has its key can work out the token of a text
that is known, and rules name the texts they care for: the segments of paths, the values of
descriptors, the names of callers. So what a rule names is read back, and what none names stays
hidden. More texts than rules look for do no harm; all that stand in the files are taken.

A glob names no text. It is reported, for what was redacted there cannot match it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from sluicegate.contracts.checks import CheckRequest
from sluicegate.contracts.rulebook import Files
from sluicegate.rules.mesh.parser import is_mesh
from sluicegate.rules.mesh.rule import Semantics
from sluicegate.rules.resources.priorities import NAME_HEADER_DEFAULT
from sluicegate.shadow.capture.key import CaptureKey
from sluicegate.shadow.capture.settings import HEADERS_DEFAULT
from sluicegate.shadow.redaction import Vocabulary
from sluicegate.shadow.replay_rules import is_rules_file, read_file
from sluicegate.shadow.secret_names import is_secret
from sluicegate.shadow.traffic import CapturedTraffic

_GLOB: Final = "*"


def vocabulary_of(
    books: Iterable[Files],
    key: CaptureKey | None,
    *,
    semantics: Semantics | str = Semantics.SLUICEGATE,
    names: Iterable[str] = (),
) -> Vocabulary:
    """The literals of several rule sets, and these names, under the key of a capture.

    A `BadRules` says what is wrong with a file.
    """
    literals = {*names}
    globs: set[tuple[str, str]] = set()
    for files in books:
        for name, data in files.items():
            if is_rules_file(name):
                _, value = read_file(name, data, semantics)
                literals.update(_texts(value))
                globs.update(_globs(value))
    return Vocabulary(sorted(literals), key=key, globs=sorted(globs))


def describe_untried(
    current: Files,
    candidate: Files,
    traffic: CapturedTraffic,
    unmatched_globs: Iterable[tuple[str, str]],
    *,
    semantics: Semantics | str = Semantics.SLUICEGATE,
) -> list[str]:
    """Describe the parts of the candidate that this capture cannot try.

    In changed files, a glob over redacted values matches nothing, and neither does a header that
    was not captured. In no file does a header whose name marks it as a secret.
    """
    globs: set[tuple[str, str]] = set()
    headers: set[str] = set()
    secret: set[str] = set()
    captured = {
        pair
        for query in traffic.queries
        if isinstance(query, CheckRequest)
        for pair in query.headers.items()
    }
    for name, data in candidate.items():
        if is_rules_file(name):
            _, value = read_file(name, data, semantics)
            secret.update(filter(is_secret, _headers(value)))
            if current.get(name) != data:
                globs.update(_globs(value))
                headers.update(_headers(value))
    words = [
        f"{glob!r} of {where} cannot match what was redacted"
        # A glob that was live during the capture stands there in place of the names it decided.
        for where, glob in sorted(globs.intersection(unmatched_globs) - captured)
    ]
    words += [
        f"the header {name} carries a secret by its name and is never captured; rename it"
        for name in sorted(secret)
    ]
    headers.difference_update(HEADERS_DEFAULT, secret)
    if headers:
        missing = headers - {name for name, _ in captured}
        words += [f"the header {name} was not captured" for name in sorted(missing)]
    return words


def _headers(value: object) -> Iterator[str]:
    """The headers that rules read."""
    if isinstance(value, Mapping):
        priorities = value.get("priorities")
        names = [value.get("client_type_header")]
        names.append(priorities.get("header") if isinstance(priorities, Mapping) else None)
        yield from (name.lower() for name in names if isinstance(name, str))


def _texts(value: object) -> Iterator[str]:
    """All texts, and the segments of those that are paths."""
    if isinstance(value, str):
        yield value
        if "/" in value:
            yield from filter(None, value.split("/"))
    elif isinstance(value, int) and not isinstance(value, bool):
        yield str(value)  # a descriptor's value may be written as a number
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _texts(name)
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def _globs(value: object) -> Iterator[tuple[str, str]]:
    """Where globs stand, and what they say: values of descriptors, and names of requests."""
    if not isinstance(value, Mapping):
        return
    if is_mesh(value):
        yield from _globs_below(value.get("descriptors"))
        return
    priorities = value.get("priorities")
    if isinstance(priorities, Mapping) and isinstance(priorities.get("names"), Mapping):
        header = str(priorities.get("header") or NAME_HEADER_DEFAULT).lower()
        for name in priorities["names"]:
            if isinstance(name, str) and _GLOB in name:
                yield header, name


def _globs_below(descriptors: object) -> Iterator[tuple[str, str]]:
    if not isinstance(descriptors, list):
        return
    for one in descriptors:
        if isinstance(one, Mapping):
            key, value = one.get("key"), one.get("value")
            if type(key) is int:
                key = str(key)
            if isinstance(key, str) and isinstance(value, str) and _GLOB in value:
                yield key, value
            yield from _globs_below(one.get("descriptors"))
