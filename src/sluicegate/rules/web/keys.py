"""Keys: whose requests a rule counts together.

    address            the caller's address; IPv6 by its /64, address/56 by that
    user               who is authenticated
    header:x-tenant    a header's value
    path, method       what is asked for
    path.id            the segment that the match calls {id}
    everyone           all requests that match, as one

Several are joined: `[user, path]`. A key is `user:ann|path:/search`: each value with its kind, and
what divides them cannot be in one, so no value that a caller chooses makes another's key. A header
that looks like a secret is counted by a digest; so are values longer than `VALUE_CHARS_MAX`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple, TypeAlias

from sluicegate.contracts.arrival import Arrival
from sluicegate.rules.web.addresses import IPV6_PREFIX_DEFAULT, network_of

VALUE_CHARS_MAX: Final = 512
PARTS_MAX: Final = 4

# The key of an arrival; empty if it has not what the key is made of.
KeyOf: TypeAlias = Callable[[Arrival], str]

KINDS: Final = "address, user, header:NAME, path, path.NAME, method or everyone"
EVERYONE: Final = "everyone"

_HEADER: Final = re.compile(r"[a-z0-9._-]{1,64}")
_PART: Final = re.compile(
    r"""(?P<address>address)(?:/(?P<prefix>[0-9]{1,3}))?
      | (?P<plain>user|path|method|everyone)
      | header:(?P<header>[a-z0-9._-]{1,64})
      | path\.(?P<segment>[^\W\d]\w{0,63})""",
    re.VERBOSE | re.ASCII,
)
_SECRET: Final = re.compile(r"auth|cookie|key|secret|token|password|session|credential")


class _KeyPart(NamedTuple):
    """One part of a key as written, and how to read it off an arrival."""

    text: str
    read: KeyOf
    may_miss: bool

    def __repr__(self) -> str:
        return f"KeyPart({self.text!r})"


class Key(NamedTuple):
    """A key in parts."""

    parts: tuple[_KeyPart, ...]

    @property
    def may_miss(self) -> bool:
        """Whether an arrival may lack what the key is made of."""
        return any(part.may_miss for part in self.parts)

    @property
    def everyone(self) -> bool:
        """Whether all share it."""
        return self.parts[0].text == EVERYONE

    def __str__(self) -> str:
        return " and ".join(part.text for part in self.parts)


def parse_key(texts: Sequence[str], place_of: Callable[[str], int]) -> Key:
    """The key that these parts say; a `ValueError` has the remedy.

    `place_of` tells where in a path the segment of a name stands, or raises.
    """
    if not 1 <= len(texts) <= PARTS_MAX:
        raise ValueError(f"give from 1 to {PARTS_MAX} parts: {KINDS}")
    if len(set(texts)) < len(texts):
        raise ValueError("a part stands in it twice")
    if EVERYONE in texts and len(texts) > 1:
        raise ValueError("'everyone' stands alone")
    return Key(tuple([_part(text, place_of) for text in texts]))


def key_reader(key: Key) -> KeyOf:
    """The function that makes this key of an arrival."""
    if len(key.parts) == 1:
        part = key.parts[0]
        if part.text == EVERYONE:
            return lambda _: EVERYONE
        tag, read = f"{part.text}:", part.read

        def read_alone(arrival: Arrival) -> str:
            value = read(arrival)
            return _tag_value(tag, value) if value else ""

        return read_alone
    parts = [(f"{part.text}:", part.read, part.may_miss) for part in key.parts]

    def read_joined(arrival: Arrival) -> str:
        texts = []
        for tag, read, may_miss in parts:
            value = read(arrival)
            if value:
                texts.append(_tag_value(tag, value))
            elif may_miss:
                return ""
            else:
                texts.append(tag)
        return "|".join(texts)

    return read_joined


def digest(text: str) -> str:
    """A short text that stands for a long or a secret one."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def header_name(text: str) -> str | None:
    """A header's name as arrivals know it, None if it is none."""
    name = text.lower()
    return name if _HEADER.fullmatch(name) else None


def _part(text: str, place_of: Callable[[str], int]) -> _KeyPart:
    lower = text[:7].lower() == "header:"
    match = _PART.fullmatch(text.lower() if lower else text)
    if match is None:
        raise ValueError(f"give {KINDS}")
    if match["header"]:
        return _KeyPart(f"header:{match['header']}", _header_reader(match["header"]), True)
    if match["segment"]:
        return _KeyPart(text, _segment_reader(place_of(match["segment"])), False)
    if match["address"]:
        prefix = int(match["prefix"] or IPV6_PREFIX_DEFAULT)
        if not 16 <= prefix <= 128:
            raise ValueError("give an IPv6 prefix from 16 to 128 bits, as address/64")
        return _KeyPart(text, lambda arrival: network_of(arrival.address(), prefix), True)
    return _KeyPart(text, *_PLAIN[text])


def _header_reader(name: str) -> KeyOf:
    if not _SECRET.search(name):
        return lambda arrival: arrival.header(name)

    def secret(arrival: Arrival) -> str:
        value = arrival.header(name)
        return digest(value) if value else ""

    return secret


def _segment_reader(place: int) -> KeyOf:
    def segment(arrival: Arrival) -> str:
        return [part for part in arrival.path.split("/") if part][place]

    return segment


def _plain_path(arrival: Arrival) -> str:
    """The path without empty segments, as it is matched: a doubled slash is no new key."""
    path = arrival.path
    if "//" in path or path[-1:] == "/" or path[:1] != "/":
        return "/" + "/".join([part for part in path.split("/") if part])
    return path


_PLAIN: Final[dict[str, tuple[KeyOf, bool]]] = {
    "user": (lambda arrival: arrival.user(), True),
    "path": (_plain_path, False),
    "method": (lambda arrival: arrival.method, False),
    EVERYONE: (lambda _: EVERYONE, False),
}


def _tag_value(tag: str, value: str) -> str:
    """A value with its kind, free of the divider, and not too long."""
    if "|" in value or "%" in value:
        value = value.replace("%", "%25").replace("|", "%7C")
    if len(value) > VALUE_CHARS_MAX:
        # Its own kind, so that nobody can ask for another's digest by its text.
        return f"{tag[:-1]}#:{digest(value)}"
    return tag + value
