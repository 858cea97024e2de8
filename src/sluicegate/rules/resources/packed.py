"""Packed: the index over pages, which finds what `paths.py` finds, without an object for each rule.

A rule that is asked for is made when it is found. So a million rules weigh what they say, a new
version shares with the old all pages that have not changed, and nothing big is ever freed at once.

A pattern fits a path if the path's own segments stand in it, but where it has names in braces. How
literals and names alternate is the pattern's *form*, of which a book has few; so each form is
tried in turn, the one with the earlier literal first: its key is made of the path, and looked up as
an exact one is. Then come the forms of prefixes, the longest first.

Most paths tell by their first segment which forms there can be. So paths are of `FAMILIES`
families by a few letters of it, and only the forms are tried that the book has in the family of
the path, or that begin with a name in braces. That is a matter of time only, not of what is found.

Cost: one look-up for an exact path, and one for each form of that length or of a prefix that the
family has, at most `SHAPES_MAX` in all; twice as many where rules name the type of client.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, final
from zlib import crc32

from sluicegate.kernels.native import i64
from sluicegate.rules.resources.pages import (
    BELOW,
    CELL_BITS,
    CLIENT,
    END,
    HEAD_BYTES,
    OFF,
    OFFSET_BYTES,
    PRIORITY,
    TEMPLATE,
    record_key,
    record_kind,
    records_of,
)
from sluicegate.rules.resources.paths import NO_RULES, Rules
from sluicegate.rules.resources.rule import ANY_PRIORITY, EVERY_PATH, LimitKind, ResourceRule

FAMILIES: Final = 64
WILD: Final = FAMILIES  # of patterns that begin with a name in braces, or have no segment
EXACT: Final = "="
EVERYWHERE: Final = "."
ALL_BELOW: Final = "*"
SLOTS_MAX: Final = 1 << 16  # two bytes of a mark

_CELLS: Final = (1 << CELL_BITS) - 1
_SLASH: Final = 0x2F
_BRACE: Final = 0x7B
_END: Final = 0xFF

# How many rules there are of a family and a form: for any client, and for some.
Forms = Mapping[tuple[int, str], tuple[int, int]]


def family_of(path: bytes) -> int:
    """The family of a path, from the first letter and the last and the length of its beginning."""
    if len(path) < 2:
        return WILD
    size: i64 = len(path)
    end: i64 = 1
    while end < size and path[end] != _SLASH:
        end += 1
    return (path[1] + 5 * path[end - 1] + 11 * end) % FAMILIES


def form_of(key: bytes) -> tuple[int, str, bool]:
    """The family and the form of a key that can be looked up, and whether it names a client."""
    path, client, _ = key.partition(CLIENT)
    typed = bool(client)
    if not path:
        return WILD, EVERYWHERE, typed
    below = path.endswith(b"/*")
    if not below and b"{" not in path:
        return family_of(path), EXACT, typed
    segments = path.split(b"/")[1:-1] if below else path.split(b"/")[1:]
    form = "".join(["{" if segment == b"{}" else "/" for segment in segments])
    family = family_of(path) if form[:1] == "/" else WILD
    return family, form + ALL_BELOW if below else form, typed


@final
class _PathForm:
    """How literals and names alternate, and for whom there are rules of this form."""

    __slots__ = ("braces_at", "depth", "flag", "last_only", "plain", "typed")

    def __init__(self, form: str, flag: int, plain: int, typed: int) -> None:
        self.depth = len(form)
        self.flag = flag
        # The last first, so what stands before is still where it was.
        self.braces_at = [at for at, char in enumerate(form) if char == "{"][::-1]
        self.last_only = self.braces_at == [self.depth - 1]
        self.plain = plain > 0
        self.typed = typed > 0


@final
class _PathFamily:
    """All forms that the paths of a family may be of."""

    __slots__ = ("below", "exact", "here", "walks")

    def __init__(self, forms: Mapping[str, tuple[int, int]]) -> None:
        self.exact = _PathForm("", 0, *forms.get(EXACT, (0, 0)))
        # '/' goes before '{', so the order of texts is that of earlier literals.
        path_forms = sorted(forms.keys() - {EXACT, EVERYWHERE})
        here = [
            _PathForm(form, TEMPLATE, *forms[form]) for form in path_forms if form[-1] != ALL_BELOW
        ]
        below = [
            _PathForm(form[:-1], BELOW, *forms[form])
            for form in path_forms
            if form[-1] == ALL_BELOW
        ]
        self.here: list[list[_PathForm]] = []
        for form in here:
            while len(self.here) <= form.depth:
                self.here.append([])
            self.here[form.depth].append(form)
        self.below = sorted(below, key=_shallowness)
        self.walks = bool(here or below)


@final
class PackedIndex:
    """All native rules of a version; `kinds` says what the marks in the records mean."""

    __slots__ = ("_count", "_everywhere", "_families", "_kinds", "_pages", "_slots", "_slots_mask")

    def __init__(
        self, pages: Sequence[bytes], forms: Forms, kinds: Mapping[bytes, LimitKind], count: int
    ) -> None:
        self._pages: list[bytes] = list(pages)
        self._count = count
        path_forms: list[dict[str, tuple[int, int]]] = [{} for _ in range(FAMILIES + 1)]
        for (family, form), counts in forms.items():
            path_forms[family][form] = counts
        wild = path_forms[WILD]
        self._families = [_PathFamily(_both(of_family, wild)) for of_family in path_forms]
        self._everywhere = _PathForm("", 0, *wild.get(EVERYWHERE, (0, 0)))
        # Most marks are told apart by what a list is faster at than a dict: two of their bytes.
        self._kinds: dict[bytes, LimitKind] = dict(kinds)
        slots = 256
        while slots < SLOTS_MAX and slots < 8 * len(kinds):
            slots *= 2
        self._slots_mask: i64 = slots - 1
        self._slots: list[LimitKind | None] = [None] * slots
        used: set[int] = set()
        for mark, kind in kinds.items():
            slot = (mark[0] | mark[1] << 8) & (slots - 1)
            self._slots[slot] = None if slot in used else kind
            used.add(slot)

    def __len__(self) -> int:
        return self._count

    def find(self, path: str, client_type: str, priority: int) -> Rules:
        """The rules that apply to a plain path, this kind of client and this priority."""
        key = _bytes_of(path)
        family = self._families[family_of(key)]
        found = self._matching(family.exact, key, client_type, priority, path)
        if not found and family.walks:
            found = self._walk(family, key, client_type, priority)
        return found or self._matching(self._everywhere, b"", client_type, priority, EVERY_PATH)

    def rule(self, rule_id: str) -> ResourceRule | None:
        """The rule of that name, unless it is off. It looks through all: not for many asks."""
        ending = END + _bytes_of(rule_id)
        for page in self._pages:
            if ending in page:
                for record in records_of(page):
                    if record.endswith(ending) and not record.startswith(OFF, HEAD_BYTES):
                        return self._read_rule(record)
        return None

    @property
    def portions(self) -> int:
        """How many pages there are to look through."""
        return len(self._pages)

    def portion(self, number: int, needle: str) -> list[ResourceRule]:
        """The rules of a page whose name or path has these letters; most pages cost one look."""
        page = self._pages[number]
        letters = _bytes_of(needle)
        if not page or letters not in page:
            return []
        found: list[ResourceRule] = []
        for record in records_of(page):
            if letters in record[HEAD_BYTES:] and not record.startswith(OFF, HEAD_BYTES):
                rule = self._read_rule(record)
                if needle in rule.rule_id or needle in rule.path:
                    found.append(rule)
        return found

    # Inside.

    def _read_rule(self, record: bytes) -> ResourceRule:
        """The rule of a record by itself."""
        key = record_key(record)
        path, _, client_type = key.partition(CLIENT)
        rule_id = record[HEAD_BYTES + len(key) + 1 :].decode("ascii")
        kind = self._kinds[record_kind(record)]
        return ResourceRule(
            rule_id, kind, path.decode(), client_type.decode(), record[2] & PRIORITY
        )

    def _walk(self, family: _PathFamily, path: bytes, client_type: str, priority: int) -> Rules:
        depth, last, braces = _scan(path)
        if braces:
            plain = _without_names(path)
            if plain != path:
                return self._walk(family, plain, client_type, priority)
        if depth < len(family.here):
            for form in family.here[depth]:
                key = path[:last] + b"{}" if form.last_only else _with_braces(path, form.braces_at)
                found = self._matching(form, key, client_type, priority, "")
                if found:
                    return found
        for form in family.below:
            if form.depth <= depth:
                key = _prefix(path, form.depth)
                if form.braces_at:
                    key = _with_braces(key, form.braces_at)
                found = self._matching(form, key, client_type, priority, "")
                if found:
                    return found
        return NO_RULES

    def _matching(
        self, form: _PathForm, key: bytes, client_type: str, priority: int, path: str
    ) -> Rules:
        """The rules of a form; `path` is what the key says, if that is known."""
        if form.typed and client_type:
            typed = key + CLIENT + _bytes_of(client_type)
            found = self._cell(typed, key, form.flag, priority, path, client_type)
            if found:
                return found
        return self._cell(key, key, form.flag, priority, path, "") if form.plain else NO_RULES

    def _cell(
        self,
        key: bytes,
        pattern_bytes: bytes,
        flag: i64,
        priority: i64,
        path: str,
        client_type: str,
    ) -> Rules:
        """The rules of one key and of this priority, or else of any."""
        mark: i64 = crc32(key)
        page = self._pages[mark >> CELL_BITS]
        if not page:
            return NO_RULES
        at: i64 = 1 + OFFSET_BYTES * ((mark & _CELLS) >> page[0])
        here: i64 = page[at] | page[at + 1] << 8 | page[at + 2] << 16
        last: i64 = page[at + 3] | page[at + 4] << 8 | page[at + 5] << 16
        size: i64 = len(key)
        wanted: i64 = priority | flag
        found = NO_RULES
        while here < last:
            after: i64 = here + (page[here] | page[here + 1] << 8)
            begin: i64 = here + HEAD_BYTES
            end: i64 = begin + size
            if end < after and page[end] == _END and page[begin:end] == key:
                rule_priority: i64 = page[here + 2]
                if rule_priority == ANY_PRIORITY | flag and not found:
                    wanted = rule_priority  # they stand last: none is of this priority
                if rule_priority == wanted:
                    kind = self._slots[(page[here + 3] | page[here + 4] << 8) & self._slots_mask]
                    if kind is None:
                        kind = self._kinds[page[here + 3 : begin]]
                    rule_id = page[end + 1 : after].decode("ascii")
                    pattern = path or pattern_bytes.decode()
                    rule = ResourceRule(
                        rule_id, kind, pattern, client_type, rule_priority & PRIORITY
                    )
                    found = (*found, rule) if found else (rule,)
            here = after
        return found


def _scan(path: bytes) -> tuple[int, int, bool]:
    """How many segments a path has, where the last begins, and whether a brace stands in it."""
    size: i64 = len(path)
    at: i64 = 0
    depth = 0
    last = 1
    braces = False
    while at < size:
        char: i64 = path[at]
        at += 1
        if char == _SLASH:
            depth += 1
            last = at
        elif char == _BRACE:
            braces = True
    return (depth, last, braces) if size > 1 else (0, 1, False)


def _with_braces(path: bytes, braces_at: list[int]) -> bytes:
    """The path with names in braces in place of some segments, the last of them first."""
    begins = [at for at in range(1, len(path)) if path[at - 1] == _SLASH]
    begins.append(len(path) + 1)
    for at in braces_at:
        path = path[: begins[at]] + b"{}" + path[begins[at + 1] - 1 :]
    return path


def _prefix(path: bytes, depth: i64) -> bytes:
    """The pattern for all below the first segments of a path."""
    size: i64 = len(path)
    at: i64 = 1
    while at < size and depth > 0:
        if path[at] == _SLASH:
            depth -= 1
            if depth == 0:
                break
        at += 1
    if depth == 0 and at == 1:
        return b"/*"
    return path[:at] + b"/*"


def _without_names(path: bytes) -> bytes:
    """What is asked must not look like a name in braces; no literal is written so either."""
    return b"/".join([b"{" if one == b"{}" else one for one in path.split(b"/")])


def _bytes_of(text: str) -> bytes:
    """The text as keys have it; what UTF-8 cannot hold is like no key."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def _both(
    family: Mapping[str, tuple[int, int]], wild: Mapping[str, tuple[int, int]]
) -> dict[str, tuple[int, int]]:
    both = dict(wild)
    for form, (plain, typed) in family.items():
        more = wild.get(form, (0, 0))
        both[form] = (plain + more[0], typed + more[1])
    return both


def _shallowness(form: _PathForm) -> int:
    return -form.depth
