"""Codec of captures: queries as bytes; each text and query of a segment is written once and
numbered.

    text    a length doubled, one more for a token; then its bytes
    query   its length, then numbers: 0, user, weight, claim + 1, segments of the path, headers
                                      1, domain, hits, descriptors

Numbers are as varints have them: seven bits a byte, the last below 128. What stands behind a
query's known numbers, within its length, is of a later program and is passed over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, final

from sluicegate.contracts.criticality import Criticality
from sluicegate.kernels.path_index import plain_path
from sluicegate.shadow.query_keys import (
    NO_OVERRIDE,
    CheckKey,
    DescriptorKey,
    MeshKey,
    Pairs,
    QueryKey,
)
from sluicegate.shadow.redaction import Redaction, Vocabulary, token_text

MISSING_MAX: Final = 10_000_000  # texts, or queries, that stood in lost blocks
CHECK: Final = 0
MESH: Final = 1
_TEXT_BYTES_MAX: Final = 1 << 20


class Damaged(Exception):  # noqa: N818 - it names the thing
    """Bytes that are no queries."""


@final
class QueryEncoder:
    """Writes queries for one segment; `texts` and `queries` are what is new since `take`."""

    def __init__(self, redaction: Redaction) -> None:
        self._redaction = redaction
        self._texts: dict[str | bytes, int] = {}
        self.texts = bytearray()
        self.queries = bytearray()

    @property
    def texts_count(self) -> int:
        """How many different texts there are."""
        return len(self._texts)

    def record(self, key: QueryKey) -> bytes:
        """A query as bytes; its texts get their numbers."""
        out = bytearray()
        if len(key) == 5:
            self._check(out, key)
        else:
            self._mesh(out, key)
        return bytes(out)

    def add(self, record: bytes) -> None:
        """Add this query to the new ones."""
        put(self.queries, len(record))
        self.queries += record

    def take(self) -> tuple[bytes, bytes]:
        """Return what is new since the last call."""
        texts, queries = bytes(self.texts), bytes(self.queries)
        self.texts.clear()
        self.queries.clear()
        return texts, queries

    def _check(self, out: bytearray, key: CheckKey) -> None:
        user, path, weight, priority, headers = key
        redact = self._redaction.redact
        put(out, CHECK)
        put(out, self._text(redact(user)))
        put(out, weight)
        put(out, priority + 1)
        segments = [part for part in plain_path(path).split("/") if part]
        put(out, len(segments))
        for segment in segments:
            put(out, self._text(redact(segment)))
        self._pairs(out, headers)

    def _mesh(self, out: bytearray, key: MeshKey) -> None:
        domain, hits, descriptors = key
        put(out, MESH)
        put(out, self._text(domain))
        put(out, hits)
        put(out, len(descriptors))
        for pairs, own, count, unit in descriptors:
            self._pairs(out, pairs)
            put(out, own + 1)
            put(out, unit + 1)
            if unit != NO_OVERRIDE:
                put(out, count)

    def _pairs(self, out: bytearray, pairs: Pairs) -> None:
        put(out, len(pairs))
        for name, value in pairs:
            put(out, self._text(name))
            put(out, self._text(self._redaction.redact(value, name)))

    def _text(self, text: str | bytes) -> int:
        number = self._texts.get(text)
        if number is None:
            number = self._texts[text] = len(self._texts)
            token = isinstance(text, bytes)
            data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
            put(self.texts, len(data) << 1 | token)
            self.texts += data
        return number


class _Text(NamedTuple):
    """A text as it is read; `known` is false for a token that stands for nobody knows what."""

    text: str
    known: bool


_LOST: Final = _Text("", False)


@final
class QueryDecoder:
    """Reads the texts and queries of one segment; what stood in a lost block is missing.

    `unknown` are the names of headers and keys one of whose values is a token that the vocabulary
    does not have.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._texts: list[_Text] = []
        self.unknown: set[str] = set()

    def texts(self, first: int, data: bytes) -> None:
        """Read texts, the first of that number."""
        if not 0 <= first - len(self._texts) <= MISSING_MAX:
            raise Damaged
        self._texts.extend([_LOST] * (first - len(self._texts)))
        at = 0
        while at < len(data):
            mark, at = number_at(data, at)
            length = mark >> 1
            part = data[at : at + length]
            if length > _TEXT_BYTES_MAX * 4 or len(part) != length:
                raise Damaged
            at += length
            self._texts.append(self._read(part) if mark & 1 else _Text(_plain(part), True))

    def queries(self, data: bytes) -> list[QueryKey | None]:
        """Read queries; None for one whose texts are missing."""
        found: list[QueryKey | None] = []
        at = 0
        while at < len(data):
            length, at = number_at(data, at)
            if at + length > len(data):
                raise Damaged
            try:
                found.append(self._query(_Numbers(data[at : at + length])))
            except _MissingText:
                found.append(None)
            at += length
        return found

    def _read(self, token: bytes) -> _Text:
        literal = self._vocabulary.literal(token)
        if literal is None:
            return _Text(token_text(token), False)
        return _Text(literal, True)

    def _query(self, numbers: _Numbers) -> QueryKey | None:
        kind = numbers.next()
        if kind == CHECK:
            user = self._text(numbers.next()).text
            weight, priority = numbers.next(), numbers.next() - 1
            if priority > Criticality.BULK:
                return None  # of a later program
            segments = [self._text(numbers.next()).text for _ in range(numbers.next())]
            return user, "/" + "/".join(segments), weight, priority, self._pairs(numbers)
        if kind == MESH:
            domain, hits = self._text(numbers.next()).text, numbers.next()
            return domain, hits, tuple([self._one(numbers) for _ in range(numbers.next())])
        return None  # of a later program

    def _one(self, numbers: _Numbers) -> DescriptorKey:
        pairs = self._pairs(numbers)
        own, unit = numbers.next() - 1, numbers.next() - 1
        count = NO_OVERRIDE if unit == NO_OVERRIDE else numbers.next()
        return pairs, own, count, unit

    def _pairs(self, numbers: _Numbers) -> Pairs:
        pairs: list[tuple[str, str]] = []
        for _ in range(numbers.next()):
            name = self._text(numbers.next()).text
            value, is_known = self._text(numbers.next())
            if not is_known:
                self.unknown.add(name)
            pairs.append((name, value))
        return tuple(pairs)

    def _text(self, number: int) -> _Text:
        if number >= len(self._texts):
            raise _MissingText
        text = self._texts[number]
        if text is _LOST:
            raise _MissingText
        return text


class _MissingText(Exception):  # noqa: N818
    """A text that stood in a lost block."""


@final
class _Numbers:
    """Numbers one after the other."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def next(self) -> int:
        number, self._at = number_at(self._data, self._at)
        return number


def put(out: bytearray, number: int) -> None:
    """Write a number, 0 or more."""
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def number_at(data: Sequence[int], at: int) -> tuple[int, int]:
    """The number that stands here, and where it ends."""
    number = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise Damaged
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7


def _plain(data: bytes) -> str:
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise Damaged from None
