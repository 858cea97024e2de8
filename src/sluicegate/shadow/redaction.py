"""Redaction: what of a query may be written down, and how it is read again.

A value is a person's or a customer's until somebody has said that it is not. So every value becomes
a *token*, eight bytes of a keyed hash, and only what an allow list names stays as it is: single
values (`plain_values`), or all values of a header or a descriptor's key (`plain_names`). The domain
and the names of headers and keys stay, since they are written by the operator.

The words of the rules come back: whoever replays has the key, makes the tokens of all literals that
the rules name, and reads those as what they are (`Vocabulary`). A glob has no token. Which globs
could therefore not match is reported by the reader, never passed over.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Iterable
from typing import Final, final

from sluicegate.contracts.errors import BadValue
from sluicegate.shadow.capture.key import CaptureKey
from sluicegate.shadow.secret_names import is_secret

TOKEN_MARK: Final = "~"
MEMO_MAX: Final = 100_000
LITERALS_MAX: Final = 10_000_000
_CHARS_MAX: Final = 256
NO_NAMES: Final[frozenset[str]] = frozenset()


@final
class Redaction:
    """Says of each value what stands for it: its token, or the value itself.

    Without a key nothing is redacted, and nothing that carries a secret is kept all the same.
    Tokens are remembered, `MEMO_MAX` of them.
    """

    __slots__ = ("_key", "_plain_names", "_plain_values", "_tokens")

    def __init__(
        self,
        key: CaptureKey | None,
        *,
        plain_values: Iterable[str] = NO_NAMES,
        plain_names: Iterable[str] = NO_NAMES,
    ) -> None:
        self._key = key
        self._plain_values = frozenset(plain_values)
        self._plain_names = frozenset(plain_names)
        for name in self._plain_names:
            if is_secret(name):
                remedy = "leave it out: what carries a secret is never kept"
                raise BadValue("capture.plain_names", name, remedy)
        self._tokens: dict[str, bytes] = {}

    def redact(self, value: str, name: str = "") -> str | bytes:
        """What is written for a value of a header or a descriptor's key of that name."""
        key = self._key
        if key is None or value in self._plain_values or name in self._plain_names:
            return value
        token = self._tokens.get(value)
        if token is None:
            token = key.token(value)
            if len(value) <= _CHARS_MAX:
                if len(self._tokens) >= MEMO_MAX:
                    self._tokens.clear()
                self._tokens[value] = token
        return token


@final
class Vocabulary:
    """The literal texts that rules name, by their tokens.

    `globs` are pairs of where a glob stands (a header's name, a descriptor's key) and what it says.
    """

    __slots__ = ("_literals", "globs", "key")

    def __init__(
        self,
        literals: Iterable[str] = (),
        *,
        key: CaptureKey | None = None,
        globs: Iterable[tuple[str, str]] = (),
    ) -> None:
        self.key = key
        self.globs = tuple(dict.fromkeys(globs))
        self._literals: dict[bytes, str] = {}
        if key is None:
            return
        for count, literal in enumerate(literals):
            if count >= LITERALS_MAX:
                raise BadValue("vocabulary", count + 1, f"give at most {LITERALS_MAX:,} literals")
            self._literals[key.token(literal)] = literal

    def __len__(self) -> int:
        return len(self._literals)

    def literal(self, token: bytes) -> str | None:
        """The text that a token stands for, if a rule names it."""
        return self._literals.get(token)


def token_text(token: bytes) -> str:
    """How a token is shown where nobody knows what it stands for."""
    return TOKEN_MARK + urlsafe_b64encode(token).rstrip(b"=").decode("ascii")


def check_names(field: str, names: Iterable[str]) -> tuple[str, ...]:
    """Names of headers to keep, once each; `BadValue` for one that carries a secret."""
    checked: dict[str, None] = {}
    for name in names:
        if not name or name != name.lower():
            raise BadValue(field, name, "write the names of headers in lower case")
        if is_secret(name):
            raise BadValue(field, name, "leave it out: what carries a secret is never kept")
        checked[name] = None
    return tuple(checked)
