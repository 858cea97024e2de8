"""Capture key: the secret under which values become tokens and entities are drawn.

    sluicegate-capture-key-1 <64 hexadecimal digits>

It is made where it is absent, readable by its owner alone, and lies apart from the captures: who
has both can try names until one fits. Services that share a key draw the same entities, and their
captures can be read together.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Final, final

from sluicegate.contracts.errors import BadValue, Unavailable

KEY_BYTES: Final = 32
TOKEN_BYTES: Final = 8
FILE_MODE: Final = 0o600
_WORD: Final = "sluicegate-capture-key-1"
_FAMILY: Final = "sluicegate-capture-key-"
_FORBIDDEN: Final = 0o037  # the group may read it, as a mounted secret may have to be; no more
_FILE_BYTES_MAX: Final = 1_024
_TOKEN: Final = b"sg-token"
_ENTITY: Final = b"sg-entity"
_FINGERPRINT: Final = b"sg-fingerprint"


@final
class CaptureKey:
    """A secret, and the hashes under it; each use has a hash of its own."""

    __slots__ = ("_key", "fingerprint")

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise BadValue("capture.key", f"{len(key)} bytes", f"give {KEY_BYTES}")
        self._key = key
        # Tells which key a capture was made with, and nothing of it.
        self.fingerprint = self._hash(_FINGERPRINT, b"").hex()

    def __repr__(self) -> str:
        return f"<CaptureKey {self.fingerprint}>"

    def token(self, text: str) -> bytes:
        """What stands for a text."""
        return self._hash(_TOKEN, text.encode("utf-8", "surrogatepass"))

    def place(self, entity: str) -> int:
        """Where an entity stands among all: a number below 2^64, all equally likely."""
        return int.from_bytes(self._hash(_ENTITY, entity.encode("utf-8", "surrogatepass")), "big")

    def _hash(self, use: bytes, data: bytes) -> bytes:
        return blake2b(data, digest_size=TOKEN_BYTES, key=self._key, person=use).digest()


def open_key(path: str) -> CaptureKey:
    """The key in a file, which is made if there is none; several may try at once."""
    try:
        return read_key(path)
    except FileNotFoundError:
        pass
    try:
        _make(path)
        return read_key(path)
    except OSError as error:
        raise Unavailable(f"the capture key {path}", error.strerror or str(error)) from None


def read_key(path: str) -> CaptureKey:
    """The key in a file that is there; `FileNotFoundError` if it is not."""
    try:
        with open(path, "rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            text = file.read(_FILE_BYTES_MAX + 1).decode("ascii", "replace")
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Unavailable(f"the capture key {path}", error.strerror or str(error)) from None
    if mode & _FORBIDDEN:
        remedy = f"others may read or change it; chmod 600 {path}"
        raise BadValue("capture.key_file", f"{path} ({mode:04o})", remedy)
    word, _, digits = text.strip().partition(" ")
    if word != _WORD:
        newer = word.startswith(_FAMILY)
        remedy = "upgrade sluicegate" if newer else f"give a file that begins with {_WORD}"
        raise BadValue("capture.key_file", path, remedy)
    try:
        key = bytes.fromhex(digits)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise BadValue("capture.key_file", path, f"give {2 * KEY_BYTES} hexadecimal digits")
    return CaptureKey(key)


def _make(path: str) -> None:
    """Make the file whole or not at all; another's stays."""
    # Of several machines with one folder, two may have the same process number.
    made = Path(f"{path}.{os.urandom(8).hex()}.new")
    made.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(made, flags, FILE_MODE)
    try:
        os.fchmod(handle, FILE_MODE)
        os.write(handle, f"{_WORD} {os.urandom(KEY_BYTES).hex()}\n".encode())
        os.fsync(handle)
    finally:
        os.close(handle)
    try:
        with suppress(FileExistsError):
            os.link(made, path)
    finally:
        made.unlink(missing_ok=True)
