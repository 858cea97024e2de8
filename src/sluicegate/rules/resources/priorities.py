"""Priorities: how much an ask matters, settled before anyone acts on it.

What the caller claims is believed up to what the table of callers lets it claim. Without a claim,
the request's name, which a header carries, says it by a table of names; without a name that is in
the table, it is the default. Neither the default nor what strangers may claim can be CRITICAL: that
is for those who are named. What a *name* says is not clamped, since the table is the operator's; so
a header that names requests should be set where callers cannot reach it.

PriorityNames are exact, or globs in the order of the file; an exact one goes before any glob.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

from sluicegate.contracts.criticality import DEFAULT_CRITICALITY, Criticality
from sluicegate.kernels.glob_index import GlobIndex
from sluicegate.rules.resources.callers import CallerRules

NAME_HEADER_DEFAULT: Final = "x-netflix.request-name"
CLIENT_TYPE_HEADER_DEFAULT: Final = "x-client-type"
NAMES_MAX: Final = 100_000
GLOB_TRIES_MAX: Final = 1_000
_NAME_CHARS_MAX: Final = 256  # a longer one is no name that anybody wrote down

_NOBODY: Final[Mapping[str, Criticality]] = {}


@final
class PriorityNames:
    """The table of request names; a `ValueError` says why its globs would be slow."""

    __slots__ = ("_exact", "_glob_texts", "_globs", "_of_globs", "default", "header")

    def __init__(
        self,
        names: Mapping[str, Criticality] = _NOBODY,
        *,
        header: str = NAME_HEADER_DEFAULT,
        default: Criticality = DEFAULT_CRITICALITY,
    ) -> None:
        self.header = header
        self.default = default
        self._exact = {name: found for name, found in names.items() if "*" not in name}
        globs = [name for name in names if "*" in name]
        self._glob_texts = globs
        self._of_globs = [names[name] for name in globs]
        self._globs = GlobIndex(globs, tries_max=GLOB_TRIES_MAX)

    def find(self, name: str) -> Criticality:
        """What the table says of a name."""
        found = self._exact.get(name)
        if found is not None:
            return found
        if self._of_globs and len(name) <= _NAME_CHARS_MAX:
            place = self._globs.find(name)
            if place >= 0:
                return self._of_globs[place]
        return self.default

    def entry(self, name: str) -> str:
        """The entry of the table that decides a name, itself a name of the same class.

        A glob matches its own text, and no glob before it does, since that would match the name
        too. Of a name that is not in the table, the name.
        """
        if name not in self._exact and self._of_globs and len(name) <= _NAME_CHARS_MAX:
            place = self._globs.find(name)
            if place >= 0:
                return self._glob_texts[place]
        return name


@final
class Priorities:
    """Both tables of a book, and which header says the kind of client."""

    __slots__ = ("callers", "client_type_header", "names")

    def __init__(
        self,
        names: PriorityNames | None = None,
        callers: CallerRules | None = None,
        client_type_header: str = CLIENT_TYPE_HEADER_DEFAULT,
    ) -> None:
        self.names = PriorityNames() if names is None else names
        self.callers = CallerRules() if callers is None else callers
        self.client_type_header = client_type_header

    @property
    def headers(self) -> tuple[str, str]:
        """The headers that these rules read."""
        return self.names.header, self.client_type_header

    def settle(
        self, caller: str, claim: Criticality | None, headers: Mapping[str, str]
    ) -> Criticality:
        """How much the ask matters."""
        if claim is not None:
            return self.callers.clamp(caller, claim)
        names = self.names
        name = headers.get(names.header)
        return names.default if name is None else names.find(name)
