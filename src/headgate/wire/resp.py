"""RESP, the asking side: commands to bytes, and a server's refusals to plain values.

Sans-I/O: nothing here reads, waits or decides. Replies are parsed by a kept library
(`hiredis.Reader`), which is handed `error_reply` so that every `-CODE text` arrives as an
`ErrorReply` whose `kind` says in one word what can be done about it. The codes are a table; a code
without a row is the command's own affair.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from headgate.contracts.errors import BadValue, HeadgateError

Part = bytes | str | int

# What can be done about an error reply.
OWN: Final = "own"  # the command's own error: a wrong type, a script's bug
NO_SCRIPT: Final = "no_script"  # load the script and ask again; nothing was done
MOVED: Final = "moved"  # ask the node it names, from now on; nothing was done
ASK: Final = "ask"  # ask the node it names, this once; nothing was done
NOT_NOW: Final = "not_now"  # this server cannot serve now
NOT_HERE: Final = "not_here"  # these keys cannot be served now; the server itself is well
NOT_MASTER: Final = "not_master"  # another server is the master now
DENIED: Final = "denied"  # who we say we are, or what that one may do

_CODES: Final[dict[str, tuple[str, str]]] = {
    "NOSCRIPT": (NO_SCRIPT, "the server does not know the script"),
    "MOVED": (MOVED, "another node serves this key"),
    "ASK": (ASK, "another node serves this key while its slot moves"),
    "LOADING": (NOT_NOW, "it is loading its data; wait until it has"),
    "BUSY": (NOT_NOW, "a script keeps it busy; end that with SCRIPT KILL"),
    "OOM": (NOT_NOW, "its memory is full; raise maxmemory or set an eviction policy"),
    "MISCONF": (NOT_NOW, "it cannot save to disk and refuses writes; see its log"),
    "NOREPLICAS": (NOT_NOW, "it has fewer replicas than min-replicas-to-write asks for"),
    "CLUSTERDOWN": (NOT_HERE, "the cluster does not serve this slot now"),
    "TRYAGAIN": (NOT_HERE, "the slot of these keys is being moved"),
    "CROSSSLOT": (OWN, "the keys are in different slots; give them one hash tag"),
    "READONLY": (NOT_MASTER, "it is a replica, and takes no writes"),
    "MASTERDOWN": (NOT_MASTER, "it is a replica that has lost its master"),
    "NOAUTH": (DENIED, "it wants a password; put one in the URL"),
    "WRONGPASS": (DENIED, "it refuses this user name and password; correct the URL's"),
    "NOPERM": (DENIED, "the user may not do this; widen its ACL rule"),
    "DENIED": (DENIED, "it is in protected mode; set a password there, or bind it elsewhere"),
}

# Redis before 7 wraps what a command in a script answered: "ERR Error running script (call to
# f_6b1bf4...): @user_script:1: @user_script: 1: -OOM command not allowed ..."
_WRAPPED: Final = "ERR Error running script"
_WRAP_ENDS: Final = ": -"

_LENGTHS: Final = [b"$%d\r\n" % length for length in range(128)]


@final
class ErrorReply(HeadgateError):  # noqa: N818 - it names the thing, not the class
    """What a server answered instead of a result; `sentence` says what to do if it is known."""

    def __init__(
        self, code: str, text: str, kind: str, sentence: str, slot: int, host: str, port: int
    ) -> None:
        super().__init__(f"{text} ({sentence})" if sentence else text)
        self.code = code
        self.text = text
        self.kind = kind
        self.sentence = sentence
        # Of MOVED and ASK; an empty host means the host that answered.
        self.slot = slot
        self.host = host
        self.port = port

    def __reduce__(
        self,
    ) -> tuple[type[ErrorReply], tuple[str, str, str, str, int, str, int]]:
        return ErrorReply, (
            self.code,
            self.text,
            self.kind,
            self.sentence,
            self.slot,
            self.host,
            self.port,
        )


def error_reply(text: str) -> ErrorReply:
    """The value of an error reply's text, the leading minus left out. Never raises."""
    code = _code_of(text)
    row = _CODES.get(code)
    if row is None:
        return ErrorReply(code, text, OWN, "", -1, "", 0)
    kind, sentence = row
    if kind in (MOVED, ASK):
        words = text.split()
        if len(words) >= 3:
            host, _, port = words[2].rpartition(":")
            if words[1].isdecimal() and port.isdecimal():
                return ErrorReply(code, text, kind, sentence, int(words[1]), host, int(port))
        return ErrorReply(code, text, OWN, "it cannot be understood", -1, "", 0)
    return ErrorReply(code, text, kind, sentence, -1, "", 0)


def _code_of(text: str) -> str:
    code = text.partition(" ")[0]
    if code == "ERR" and text.startswith(_WRAPPED):
        at = text.rfind(_WRAP_ENDS)
        if at >= 0:
            inner = text[at + len(_WRAP_ENDS) :].partition(" ")[0]
            if inner in _CODES:
                return inner
    return code


def command(*parts: Part) -> bytes:
    """One command as the server reads it."""
    return b"*%d\r\n%b" % (len(parts), arguments(parts))


def head(count: int, *parts: Part) -> bytes:
    """The beginning of a command of `count` parts, for callers that keep it and add the rest."""
    return b"*%d\r\n%b" % (count, arguments(parts))


def arguments(parts: Sequence[Part]) -> bytes:
    """Parts of a command without its head: bytes as they are, str as UTF-8, int in decimal."""
    out: list[bytes] = []
    things: Sequence[object] = parts  # whatever is handed in: we say what is wrong, and how
    for part in things:
        if isinstance(part, bytes):
            data = part
        elif isinstance(part, str):
            try:
                data = part.encode()
            except UnicodeEncodeError:
                raise BadValue("command", part, "give text that UTF-8 can hold, or bytes") from None
        elif isinstance(part, int) and not isinstance(part, bool):  # nobody could read that back
            data = b"%d" % part
        else:
            raise BadValue("command", part, "give bytes, str or int; round or spell out the rest")
        length = len(data)
        out.append(_LENGTHS[length] if length < 128 else b"$%d\r\n" % length)
        out.append(data)
        out.append(b"\r\n")
    return b"".join(out)
