"""Errors: what a command that cannot be carried out is answered with.

The words for what is wrong with a command are Redis's own, because clients read them; the rest is
told by the table of reasons and by the errors' own sentences.
"""

from __future__ import annotations

import logging
from typing import Final

from sluicegate.contracts.errors import (
    BadValue,
    Conflict,
    DataLoss,
    Forbidden,
    OutcomeUnknown,
    Refused,
    SluicegateError,
    Unauthenticated,
    Unavailable,
)
from sluicegate.contracts.reasons import OUTCOME_UNKNOWN, STORE_UNAVAILABLE
from sluicegate.wire.resp import error_line

_log: Final = logging.getLogger("sluicegate.resp")

NOAUTH: Final = error_line("NOAUTH Authentication required.")
WRONGPASS: Final = error_line("WRONGPASS invalid username-password pair or user is disabled.")
NOPROTO: Final = error_line("NOPROTO unsupported protocol version")
SYNTAX: Final = error_line("ERR syntax error")
NOT_INTEGER: Final = error_line("ERR value is not an integer or out of range")

_SHOWN_MAX: Final = 128  # bytes of what was sent, in an error about it
_OURS: Final = "ERR the service failed to answer; its log says why"


def reply_to_error(error: BaseException, slowed_us: int = 0) -> bytes:
    """The error reply to a command that has raised this. What is our own bug says little.

    A refusal also says for how long the caller's connections are not read.
    """
    if isinstance(error, BadValue):
        return error_line(f"ERR {error}")
    if isinstance(error, OutcomeUnknown):
        return error_line(f"{OUTCOME_UNKNOWN.resp_error} {error}")
    if isinstance(error, Unavailable):
        return error_line(f"{STORE_UNAVAILABLE.resp_error} {error}")
    if isinstance(error, Forbidden):
        return error_line(f"NOPERM {error}")
    if isinstance(error, Unauthenticated):
        return error_line(f"NOAUTH {error}")
    if isinstance(error, Refused):
        reason = error.decision.reason
        code = "LIMITED" if reason is None else reason.resp_error
        when = _milliseconds("retry_after_ms", error.decision.retry_after_us)
        return error_line(f"{code} {error}{when}{_milliseconds('slowed_ms', slowed_us)}")
    if isinstance(error, DataLoss):
        return error_line(f"DATALOSS {error}")
    if isinstance(error, Conflict):
        return error_line(f"CONFLICT {error}")
    if isinstance(error, SluicegateError):
        return error_line(f"ERR {error}")
    _log.error("a command failed", exc_info=error)
    return error_line(_OURS)


def _milliseconds(name: str, span_us: int) -> str:
    """A span, where there is one; a moment less would be too early."""
    return f" {name}={-(-span_us // 1_000)}" if span_us > 0 else ""


def unknown_command(parts: list[bytes]) -> bytes:
    """Nobody here knows the first word."""
    shown = "".join(f"'{_printable(part)}' " for part in parts[1:4])
    text = f"ERR unknown command '{_printable(parts[0])}', with args beginning with: {shown}"
    return error_line(text)


def wrong_arity(name: str) -> bytes:
    """Too few words, or too many."""
    return error_line(f"ERR wrong number of arguments for '{name.lower()}' command")


def unknown_subcommand(name: str, parts: list[bytes]) -> bytes:
    """Nobody here knows the second word."""
    return error_line(f"ERR unknown subcommand '{_printable(parts[1])}'. Try {name} HELP.")


def _printable(part: bytes) -> str:
    return part[:_SHOWN_MAX].decode("utf-8", "backslashreplace")
