"""RESP, both sides: commands to bytes and back, replies to bytes, refusals to plain values.

Sans-I/O: nothing here reads, waits or decides. Who asks has replies parsed by a kept library
(`hiredis.Reader`), which is handed `error_reply` so that every `-CODE text` arrives as an
`ErrorReply` whose `kind` says in one word what can be done about it. The codes are a table; a code
without a row is the command's own affair.

Who answers reads commands by `CommandReader`, because that library makes room for as many parts as
a stranger claims to send: here what is claimed is held against a bound before any of it is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, final

from sluicegate.contracts.errors import BadValue, SluicegateError
from sluicegate.kernels.native import i64, mypyc_attr

Part = bytes | str | int

# What can be done about an error reply.
OWN: Final = "own"  # the command's own error: a wrong type, a script's bug
NO_SCRIPT: Final = "no_script"  # load the script and ask again; nothing was done
MOVED: Final = "moved"  # ask the node it names, from now on; nothing was done
ASK: Final = "ask"  # ask the node it names, this once; nothing was done
NOT_NOW: Final = "not_now"  # this server cannot serve now
NO_WRITES: Final = "no_writes"  # this server takes no writes now; what it has can be read
NOT_HERE: Final = "not_here"  # these keys cannot be served now; the server itself is well
NOT_MASTER: Final = "not_master"  # another server is the master now
DENIED: Final = "denied"  # who we say we are, or what that one may do

_CODES: Final[dict[str, tuple[str, str]]] = {
    "NOSCRIPT": (NO_SCRIPT, "the server does not know the script"),
    "MOVED": (MOVED, "another node serves this key"),
    "ASK": (ASK, "another node serves this key while its slot moves"),
    "LOADING": (NOT_NOW, "it is loading its data; wait until it has"),
    "BUSY": (NOT_NOW, "a script keeps it busy; end that with SCRIPT KILL"),
    "OOM": (NO_WRITES, "its memory is full; raise maxmemory"),
    "MISCONF": (NO_WRITES, "it cannot save to disk and refuses writes; see its log"),
    "NOREPLICAS": (NO_WRITES, "it has fewer replicas than min-replicas-to-write asks for"),
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
# Redis 7 ends it with the script: "... 'maxmemory'. script: 80833..., on @user_script:8."
_SCRIPT: Final = " script: "

_LENGTHS: Final = [b"$%d\r\n" % length for length in range(128)]


@final
@mypyc_attr(native_class=False)
class ErrorReply(SluicegateError):  # noqa: N818 - it names the thing, not the class
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
    return ErrorReply(code, text.partition(_SCRIPT)[0], kind, sentence, -1, "", 0)


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


# The answering side.

_CR: Final = 13
_LF: Final = 10
_ZERO: Final = 48
_STAR: Final = 42
_DOLLAR: Final = 36
_MINUS: Final = 45
_LENGTH_DIGITS_MAX: Final = 10
_LONG_BYTES: Final = 65_536  # a shorter word is copied once more with each read; that is cheaper
# The bounds of Redis itself. Beyond them a command is a protocol error.
_REDIS_PARTS_MAX: Final = 1 << 20
_REDIS_BULK_BYTES_MAX: Final = 512 << 20
_HEX: Final = b"0123456789abcdefABCDEF"
_ESCAPES: Final = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"a": b"\a"}


@mypyc_attr(native_class=False)
class WireError(SluicegateError):
    """What came is not RESP, or more than is taken: nothing behind it can be understood."""


@mypyc_attr(native_class=False)
class OversizedCommand(WireError):  # noqa: N818 - it names the thing, not the class
    """A command beyond the bounds, which was read to its end and not kept: the next one follows."""


@final
class CommandReader:
    """Commands out of bytes that come in pieces: arrays of bulk strings, or a line typed by hand.

    `gets` gives the parts of the next command, or None until more is fed. A command costs time in
    proportion to its bytes, however they are cut: a long word is gathered, and not copied with each
    piece of it. No more of it is kept than the bounds say, and what claims to become more ends in a
    `WireError` at once. With `skips` it is read to its end, dropped, and ends in an
    `OversizedCommand`, unless it exceeds what Redis itself takes.
    """

    __slots__ = (
        "_at",
        "_data",
        "_gathered",
        "_left",
        "_missing",
        "_oversized",
        "_parts",
        "_size",
        "_skipped",
        "_wanted",
        "bulk_bytes_max",
        "command_bytes_max",
        "inline_bytes_max",
        "parts_max",
        "skips",
    )

    def __init__(
        self, parts_max: int, bulk_bytes_max: int, command_bytes_max: int, inline_bytes_max: int
    ) -> None:
        self.parts_max = parts_max
        self.bulk_bytes_max = bulk_bytes_max
        self.command_bytes_max = command_bytes_max
        self.inline_bytes_max = inline_bytes_max
        self.skips = False
        self._data = b""
        self._at = 0
        self._left = 0  # parts of the command under way that have not come
        self._wanted = -1  # bytes of the part under way; -1 before its length is known
        self._size = 0  # bytes of the command under way
        self._parts: list[bytes] = []
        self._gathered = bytearray()  # of a long word, and no command is behind it yet
        self._missing = 0  # bytes until it is whole; 0 if none is gathered
        self._oversized = ""  # why the unfinished command is not kept
        self._skipped = 0  # bytes of its unfinished part that have not arrived

    @property
    def unread(self) -> int:
        """Bytes that were fed and are not a part of any command yet."""
        return len(self._data) - self._at + len(self._gathered)

    @property
    def held_bytes(self) -> int:
        """Bytes that were fed, of commands that have not come whole or were not returned."""
        if self._left == 0:
            return self.unread
        return self.unread + self._size - max(self._wanted, 0)

    @property
    def partial(self) -> bool:
        """Whether a command has begun and not come whole."""
        return self._left > 0 or self._at < len(self._data) or bool(self._oversized)

    def feed(self, data: bytes) -> None:
        """Here is more."""
        if self._skipped > 0:
            skipped = min(self._skipped, len(data))
            self._skipped -= skipped
            data = data[skipped:]
        if self._missing > 0:
            self._gathered += data
            self._missing -= len(data)
            if self._missing > 0:
                return
            self._missing = 0
            data = bytes(self._gathered)
            self._gathered = bytearray()
        if self._at < len(self._data):
            self._data = self._data[self._at :] + data
        else:
            self._data = data
        self._at = 0

    def gets(self) -> list[bytes] | None:
        """The next command; None if it has not come whole."""
        if self._missing > 0 or self._skipped > 0:
            return None
        if self._oversized and self._left == 0:
            raise self._end_skipped()
        while self._left == 0:
            if self._at >= len(self._data):
                return None
            if self._data[self._at] != _STAR:
                parts = self._line()
                if parts is None or parts:
                    return parts
            else:
                most = _REDIS_PARTS_MAX if self.skips else self.parts_max
                count = self._length("multibulk", most)
                if count == _UNKNOWN:
                    return None
                if count > 0:
                    self._left = count
                    self._parts = []
                    self._size = 0
                    if count > self.parts_max:
                        self._oversized = f"a command has {self.parts_max} parts at most"
        return self._array()

    def _array(self) -> list[bytes] | None:
        """The rest of the parts that an array has announced."""
        data = self._data
        size = len(data)
        while True:
            wanted = self._wanted
            if wanted < 0:
                at = self._at
                if at < size and data[at] != _DOLLAR:
                    raise WireError(f"Protocol error: expected '$', got {_printable(data[at])}")
                most = _REDIS_BULK_BYTES_MAX if self.skips else self.bulk_bytes_max
                wanted = self._length("bulk", most)
                if wanted == _UNKNOWN:
                    return None
                if wanted < 0:
                    raise WireError("Protocol error: invalid bulk length")
                self._size += wanted
                if wanted > self.bulk_bytes_max or self._size > self.command_bytes_max:
                    self._drop(wanted)
                if self._oversized:
                    if self._skip(wanted):
                        continue
                    return None
            at = self._at
            end = at + wanted
            if end + 2 > size:
                self._wanted = wanted
                if wanted >= _LONG_BYTES:
                    self._gathered += data[at:]
                    self._missing = end + 2 - size
                    self._data = b""
                    self._at = 0
                return None
            if data[end] != _CR or data[end + 1] != _LF:
                raise WireError("Protocol error: a bulk string is longer than its length")
            self._parts.append(data[at:end])
            self._wanted = -1
            self._at = end + 2
            self._left -= 1
            if self._left == 0:
                return self._parts

    def _drop(self, wanted: int) -> None:
        """Discard the unfinished command; raise `WireError` without `skips`."""
        why = f"a command is {self.command_bytes_max} bytes at most"
        if not self.skips:
            raise WireError(f"Protocol error: {why}")
        if not self._oversized:
            long = f"a part of a command is {self.bulk_bytes_max} bytes at most"
            self._oversized = long if wanted > self.bulk_bytes_max else why
        self._parts = []
        self._size = 0

    def _skip(self, wanted: int) -> bool:
        """Pass over a part; return whether another follows that has begun to come."""
        self._left -= 1
        end = self._at + wanted + 2
        size = len(self._data)
        if end > size:
            self._skipped = end - size
            self._data = b""
            self._at = 0
            return False
        self._at = end
        if self._left == 0:
            raise self._end_skipped()
        return True

    def _end_skipped(self) -> OversizedCommand:
        error = OversizedCommand(f"{self._oversized}; send less at a time")
        self._oversized = ""
        return error

    def _length(self, what: str, most: int) -> int:
        """The number of a line like *3 or $12, its kind passed over; `_UNKNOWN` until it is whole.

        Below zero is nothing, as ever was: -1.
        """
        data = self._data
        size: i64 = i64(len(data))
        at: i64 = i64(self._at) + 1
        minus = at < size and data[at] == _MINUS
        if minus:
            at += 1
        first = at
        read: i64 = 0
        while at < size:
            digit: i64 = i64(data[at] - _ZERO)
            if not 0 <= digit <= 9:
                break
            read = read * 10 + digit
            at += 1
            if read > most and not minus:
                raise WireError(
                    f"Protocol error: invalid {what} length; {most} is the most taken here"
                )
            if at - first > _LENGTH_DIGITS_MAX:
                raise WireError(f"Protocol error: invalid {what} length")
        number = int(read)
        if at < size and (data[at] != _CR or at == first):
            raise WireError(f"Protocol error: invalid {what} length")
        if at + 1 >= size:
            return _UNKNOWN
        if data[at + 1] != _LF:
            raise WireError(f"Protocol error: invalid {what} length")
        self._at = int(at) + 2
        return -1 if minus and number > 0 else number

    def _line(self) -> list[bytes] | None:
        """A command typed by hand; one without words is to be passed over."""
        end = self._data.find(b"\n", self._at)
        length = (end if end >= 0 else len(self._data)) - self._at
        if length > self.inline_bytes_max:
            raise WireError("Protocol error: too big inline request")
        if end < 0:
            return None
        line = self._data[self._at : end]
        self._at = end + 1
        parts = split_line(line.removesuffix(b"\r"))
        if len(parts) > self.parts_max:
            raise WireError(f"Protocol error: {self.parts_max} parts are the most taken here")
        return parts


_UNKNOWN: Final = -2


def _printable(byte: int) -> str:
    return repr(chr(byte)) if 32 <= byte < 127 else f"byte {byte}"


def split_line(line: bytes) -> list[bytes]:
    """The words of a line; "..." with escapes and '...' hold spaces."""
    if b'"' not in line and b"'" not in line:
        return line.split()
    words: list[bytes] = []
    at = 0
    while at < len(line):
        if line[at : at + 1].isspace():
            at += 1
        else:
            word, at = _word(line, at)
            words.append(word)
    return words


def _word(line: bytes, at: int) -> tuple[bytes, int]:
    """One word, and where it ends."""
    out: list[bytes] = []
    while at < len(line):
        char = line[at : at + 1]
        if char.isspace():
            break
        if char in (b'"', b"'"):
            text, at = _quoted(line, at + 1, char)
            out.append(text)
            if at < len(line) and not line[at : at + 1].isspace():
                raise WireError("Protocol error: unbalanced quotes in request")
            break
        out.append(char)
        at += 1
    return b"".join(out), at


def _quoted(line: bytes, at: int, quote: bytes) -> tuple[bytes, int]:
    out: list[bytes] = []
    while at < len(line):
        char = line[at : at + 1]
        following = line[at + 1 : at + 2]
        if char == quote:
            return b"".join(out), at + 1
        if char == b"\\" and quote == b'"' and following:
            code = line[at + 2 : at + 4]
            if following == b"x" and len(code) == 2 and code[0] in _HEX and code[1] in _HEX:
                out.append(bytes([int(code, 16)]))
                at += 4
            else:
                out.append(_ESCAPES.get(following, following))
                at += 2
        elif char == b"\\" and following == b"'" and quote == b"'":
            out.append(b"'")
            at += 2
        else:
            out.append(char)
            at += 1
    raise WireError("Protocol error: unbalanced quotes in request")


@final
class SimpleString:
    """A string that is sent without its length, as OK and PONG are."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


OK: Final = b"+OK\r\n"


def encode_reply(reply: object, protocol: int = 2) -> bytes:
    """Return a reply in RESP 2 or 3: None, int, str, bytes, `SimpleString`, sequence or mapping."""
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    if isinstance(reply, str):
        reply = reply.encode("utf-8", "backslashreplace")
    if isinstance(reply, bytes):
        return b"$%d\r\n%b\r\n" % (len(reply), reply)
    if reply is None:
        return b"_\r\n" if protocol == 3 else b"$-1\r\n"
    if isinstance(reply, SimpleString):
        return b"+%b\r\n" % one_line(reply.text)
    if isinstance(reply, Mapping):
        flat = [encode_reply(one, protocol) for pair in reply.items() for one in pair]
        mark = b"%%%d\r\n" % len(reply) if protocol == 3 else b"*%d\r\n" % len(flat)
        return mark + b"".join(flat)
    if isinstance(reply, Sequence):
        return b"*%d\r\n" % len(reply) + b"".join([encode_reply(one, protocol) for one in reply])
    raise BadValue("reply", reply, "give what RESP can say")


def error_line(text: str) -> bytes:
    """An error reply; its first word is its code."""
    return b"-%b\r\n" % one_line(text)


def one_line(text: str) -> bytes:
    """The text without what would end its line."""
    return text.replace("\r", " ").replace("\n", " ").encode("utf-8", "backslashreplace")


def whole_number(data: bytes) -> int:
    """A whole number of 64 bits as it is written, a sign at most before it; else ValueError."""
    size = len(data)
    at = 0
    minus = False
    if size > 0 and (data[0] == _MINUS or data[0] == _PLUS):
        minus = data[0] == _MINUS
        at = 1
    if at == size or size - at > _NUMBER_DIGITS_MAX:
        raise ValueError("not a number of 64 bits")
    small: i64 = 0
    while at < size:
        digit = data[at] - _ZERO
        if not 0 <= digit <= 9:
            raise ValueError("not a number of 64 bits")
        if small >= _SMALL_MAX:
            return _large_number(data)
        small = small * 10 + digit
        at += 1
    return -int(small) if minus else int(small)


def _large_number(data: bytes) -> int:
    """The same of a number with 19 digits."""
    text = data.decode("latin-1")
    if not text.lstrip("+-").isdecimal() or not text.isascii():
        raise ValueError("not a number of 64 bits")
    number = int(text)
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError("not a number of 64 bits")
    return number


_PLUS: Final = 43
_NUMBER_DIGITS_MAX: Final = 19
_SMALL_MAX: Final = 10**17  # one more digit still fits a machine integer
