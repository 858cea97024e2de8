"""Messages: errors in the words of the command line.

The rulebook names the fields of its operations, and so does a server that passes an error on. A
command has flags and verbs. Here the one becomes the other; what was refused, and why, stays.
"""

from __future__ import annotations

from typing import Final, final

from sluicegate.contracts.errors import (
    BadValue,
    Conflict,
    Forbidden,
    SluicegateError,
    Unauthenticated,
    Unavailable,
)
from sluicegate.contracts.rule_admin import OPERATIONS

TOKEN_VARIABLE: Final = "SLUICEGATE_TOKEN"

# Fields of operations, and what they are called on the command line.
_OPTIONS: Final = {
    **{
        argument.name: argument.option
        for operation in OPERATIONS.values()
        for argument in operation.arguments
        if argument.option.startswith("--") or argument.name in ("changes", "node")
    },
    "ca": "--ca",
    "cert": "--cert",
    "key": "--cert-key",
    "files": "--rules",
    "revision": "REVISION",
    "url": "--rulebook",
}
# Of these nothing is wrong with the value: it is known, and cannot be so treated now.
_THINGS: Final = {"proposal": "proposal ", "commit": "commit ", "to": ""}
_CONFIRM: Final = "confirm"
# What an admin advises, and the command that does it.
_ADVICE: Final = (
    ("as `proposals` lists them", "as `sluicegate rules list` shows them"),
    ("as `versions` lists them", "as `sluicegate rules list --releases` shows them"),
    ("as `rules` lists them", "as `sluicegate rules list --files` shows them"),
    ("approve it with an override that says why", "approve it with --override WHY"),
    ('send "confirm": true', "add --confirm"),
    ("(Not judged: ", "("),
)
_UNDER_WAY: Final = "is under way"
_BEARER: Final = "Authorization: Bearer"
_NAME_YOURSELF: Final = f"put a token into {TOKEN_VARIABLE}, or give --cert and --cert-key"
_NOBODY: Final = ("", "anonymous")
_CHARS_MAX: Final = 80
_ID_CHARS: Final = 12
_NO_CERTIFICATE: Final = ("closed connection", "EOF occurred", "CERTIFICATE_REQUIRED")
# The same, if the request is still being written when the server hangs up.
_HUNG_UP: Final = ("Broken pipe", "Connection reset")
_NOT_TRUSTED: Final = ("self-signed certificate", "unable to get local issuer")


@final
class RewordedError(BadValue):
    """The same refusal, in other words."""

    def __init__(self, sentence: str, error: BadValue) -> None:
        super().__init__(error.field, error.value, error.remedy)
        self._sentence = sentence

    def __str__(self) -> str:
        return self._sentence


def reword(error: SluicegateError) -> SluicegateError:
    """The error as it is told here; one that is well said is returned as it is."""
    if type(error) is BadValue:
        sentence = _sentence(error)
        return error if sentence == str(error) else RewordedError(sentence, error)
    if isinstance(error, Conflict) and _UNDER_WAY in error.detail:
        return SluicegateError(
            error.detail
        )  # whoever has begun it, nothing was changed behind a back
    if isinstance(error, Unauthenticated) and _BEARER in error.remedy:
        return Unauthenticated(_NAME_YOURSELF)
    if isinstance(error, Forbidden) and error.who in _NOBODY:
        return SluicegateError(f"this takes the grant {error.grant!r}; {_NAME_YOURSELF}")
    return error


def explain_unreachable(error: Unavailable, *, secure: bool, certified: bool) -> Unavailable:
    """What a server that could not be asked may lack, where that can be guessed."""
    detail = error.detail
    if any(words in detail for words in _NOT_TRUSTED):
        advice = "no authority that is trusted here has signed its certificate; give --ca FILE"
        return Unavailable(error.what, advice)
    telling = (*_NO_CERTIFICATE, *_HUNG_UP) if secure else _NO_CERTIFICATE
    if not any(words in detail for words in telling) or (secure and certified):
        return error
    advice = (
        "it may ask for a client certificate; give --cert and --cert-key"
        if secure
        else "it may speak TLS; write https://"
    )
    return Unavailable(error.what, f"{detail}; {advice}")


def _sentence(error: BadValue) -> str:
    remedy = error.remedy
    for advice, local in _ADVICE:
        remedy = remedy.replace(advice, local)
    field, value = error.field, error.value
    if field == _CONFIRM:
        return remedy
    if field in _THINGS and isinstance(value, str):
        return f"{_THINGS[field]}{_short(value, of_commit=field == 'commit')}: {remedy}"
    if value is None or (value == "" and field not in _OPTIONS and not field.startswith("--")):
        return f"{_OPTIONS.get(field, field)}: {remedy}"
    return str(BadValue(_OPTIONS.get(field, field), value, remedy))


def _short(value: str, *, of_commit: bool) -> str:
    text = value[:_ID_CHARS] if of_commit else value
    return text if len(text) <= _CHARS_MAX else f"{text[:_CHARS_MAX]}..."
