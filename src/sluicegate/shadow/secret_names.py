"""Secret names: which headers and descriptor keys carry what lets somebody in.

Of these nothing is ever kept, not even as a token: a token of a password tells who else has it.
A name is judged by its words, whatever stands between them, and rather once too often.
"""

from __future__ import annotations

import re
from typing import Final

# Anywhere in a name, without what stands between its words.
_PARTS: Final = (
    "accesskey",
    "apikey",
    "authenticat",
    "authorization",
    "bearer",
    "cookie",
    "credential",
    "jwt",
    "passphrase",
    "passwd",
    "password",
    "privatekey",
    "secret",
    "session",
    "signature",
    "token",
)
# Only as a whole word: `auth` is in `author` too.
_WORDS: Final = frozenset(
    {"auth", "csrf", "mfa", "oauth", "otp", "pin", "pwd", "sid", "sso", "xsrf"}
)
_BETWEEN: Final = re.compile(r"[^a-z0-9]+")
_VERDICTS_MAX: Final = 4_096
_verdicts: Final[dict[str, bool]] = {}


def is_secret(name: str) -> bool:
    """Whether a header or a key of that name carries a secret."""
    verdict = _verdicts.get(name)
    if verdict is None:
        verdict = _judge(name)
        if len(_verdicts) < _VERDICTS_MAX and len(name) <= 128:
            _verdicts[name] = verdict
    return verdict


def _judge(name: str) -> bool:
    words = _BETWEEN.split(name.lower())
    if not _WORDS.isdisjoint(words):
        return True
    squashed = "".join(words)
    return any(part in squashed for part in _PARTS)
