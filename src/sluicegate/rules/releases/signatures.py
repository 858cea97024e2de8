"""Signing: who gave an order is known by its signature, and by nothing else.

A signed document is an envelope of JSON: a format, a kind, the id of the key, a signature, and the
body, whose exact bytes were signed. The signature also covers the kind and the format, so a rollout
can never pass for a release, whoever relabels it. Keys are Ed25519. A node trusts as many as it
is given, so that a new one can be trusted before it is used and an old one until it is not.

A private key lives in a file that nobody else may read. It is never shown, logged or sent.

Signed: releases and rollouts together with the bytes that prove who gave them.

Whoever keeps or passes on a release or a rollout keeps the signed bytes, so that it can be verified
again: a node at its next start, or another node.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import stat
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple, final

from sluicegate.contracts.errors import BadValue, MissingPackage, SluicegateError, Unavailable
from sluicegate.contracts.rulebook import Release, Rollout
from sluicegate.rules.releases.documents import (
    read_release,
    read_rollout,
    release_bytes,
    rollout_bytes,
)
from sluicegate.wire.json_objects import parse_object

try:
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
        load_pem_private_key,
        load_pem_public_key,
    )
except ModuleNotFoundError as error:
    raise MissingPackage("cryptography", "rulebook") from error

FORMAT: Final = 1
RELEASE: Final = "edition"
ROLLOUT: Final = "orders"
KEYS_MAX: Final = 16
KEY_BYTES_MAX: Final = 16 << 10
ENVELOPE_BYTES_MAX: Final = 4 << 20
ID_CHARS: Final = 16
PRIVATE_NAME: Final = "signing.pem"
PUBLIC_NAME: Final = "signing.pub.pem"

_SIGNATURE_BYTES: Final = 64
_SAFELY: Final = os.O_CLOEXEC | os.O_NOFOLLOW


class Untrusted(SluicegateError):  # noqa: N818 - it names the thing, not the class
    """Something that is not what it claims to be: what, and what was seen."""

    def __init__(self, what: str, detail: str) -> None:
        super().__init__(f"{what} cannot be trusted: {detail}")
        self.what = what
        self.detail = detail

    def __reduce__(self) -> tuple[type[Untrusted], tuple[str, str]]:
        return Untrusted, (self.what, self.detail)


class KeyFiles(NamedTuple):
    """A new key: the file to sign with, the file to give to nodes, and its id."""

    private: Path
    public: Path
    id: str


@final
class Signer:
    """Signs with one private key."""

    __slots__ = ("_key", "id")

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.id: Final = _id_of(key.public_key())

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Signer:
        """The key in a PEM file; refused where others may read it."""
        name = os.fspath(path)
        data = _read_key(name, private=True)
        try:
            key = load_pem_private_key(data, password=None)
        except TypeError:
            raise BadValue("signing key", name, "it is encrypted; give one that is not") from None
        except (ValueError, UnsupportedAlgorithm):
            raise BadValue("signing key", name, "it is no private key in PEM") from None
        if not isinstance(key, Ed25519PrivateKey):
            raise BadValue("signing key", name, "it is no Ed25519 key; make one with new_key")
        return cls(key)

    def sign(self, kind: str, body: bytes) -> bytes:
        """The envelope of a body of this kind."""
        try:
            text = body.decode("utf-8")
        except UnicodeDecodeError:
            raise BadValue(f"{kind}.body", body, "give text in UTF-8") from None
        signature = self._key.sign(_signed_bytes(kind, body))
        envelope = {
            "format": FORMAT,
            "kind": kind,
            "key": self.id,
            "signature": base64.b64encode(signature).decode("ascii"),
            "body": text,
        }
        data = json.dumps(envelope, ensure_ascii=True, separators=(",", ":")).encode("ascii")
        if len(data) > ENVELOPE_BYTES_MAX:
            raise BadValue(kind, f"{len(data):,} bytes", f"at most {ENVELOPE_BYTES_MAX:,}")
        return data

    def verifier(self) -> Verifier:
        """One that trusts this key."""
        return Verifier([self.public_pem()])

    def public_pem(self) -> bytes:
        """What nodes need to know of the key."""
        public = self._key.public_key()
        return public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def __repr__(self) -> str:
        return f"<Signer {self.id}>"


@final
class Verifier:
    """Opens envelopes that were signed with a trusted key. Immutable."""

    __slots__ = ("_keys", "ids")

    def __init__(self, pems: Iterable[bytes]) -> None:
        keys = [_public_key(pem, "trusted key") for pem in pems]
        if not 1 <= len(keys) <= KEYS_MAX:
            raise BadValue("trusted keys", len(keys), f"give from 1 to {KEYS_MAX}")
        self._keys = {_id_of(key): key for key in keys}
        self.ids: Final = tuple(self._keys)

    @classmethod
    def read(cls, paths: Sequence[str | os.PathLike[str]]) -> Verifier:
        """The public keys in these PEM files, and in the `*.pem` of these folders."""
        files: list[str] = []
        for path in [Path(path) for path in paths]:
            if path.is_dir():
                files += [str(one) for one in sorted(path.glob("*.pem"))]
            else:
                files.append(str(path))
        if not 1 <= len(files) <= KEYS_MAX:
            raise BadValue("trusted keys", files, f"give from 1 to {KEYS_MAX} public keys")
        pems = [_read_key(file, private=False) for file in files]
        for pem, file in zip(pems, files, strict=True):
            _public_key(pem, f"trusted key {file}")
        return cls(pems)

    def open(self, kind: str, data: bytes) -> bytes:
        """The body of an envelope of this kind; `Untrusted` unless a trusted key signed it."""
        what = f"the signed {kind}"
        if len(data) > ENVELOPE_BYTES_MAX:
            raise Untrusted(what, f"it has more than {ENVELOPE_BYTES_MAX:,} bytes")
        if not data.isascii():
            raise Untrusted(what, "its envelope is damaged")
        try:
            envelope = parse_object(data, "envelope")
        except BadValue as error:
            raise Untrusted(what, str(error)) from None
        if envelope.get("format") != FORMAT:
            newer = envelope.get("format")
            remedy = f"this program reads format {FORMAT}; upgrade it to read newer ones"
            raise BadValue(f"{kind}.envelope.format", newer, remedy)
        if envelope.get("kind") != kind:
            raise Untrusted(what, f"it is of the kind {str(envelope.get('kind'))[:40]!r}")
        return self._body(what, kind, envelope)

    def _body(self, what: str, kind: str, envelope: dict[str, object]) -> bytes:
        texts = [envelope.get(name) for name in ("key", "signature", "body")]
        key_id, signed, text = (one if isinstance(one, str) else "" for one in texts)
        key = self._keys.get(key_id)
        if key is None:
            trusted = ", ".join(self.ids)
            raise Untrusted(what, f"key {key_id[:ID_CHARS]!r} is not trusted here ({trusted} are)")
        try:
            signature = base64.b64decode(signed, validate=True)
            body = text.encode("utf-8")
        except (binascii.Error, ValueError):
            raise Untrusted(what, "its envelope is damaged") from None
        if len(signature) != _SIGNATURE_BYTES:
            raise Untrusted(what, "its signature is not whole")
        if base64.b64encode(signature).decode("ascii") != signed:  # bits that nobody has signed
            raise Untrusted(what, "its envelope is damaged")
        try:
            key.verify(signature, _signed_bytes(kind, body))
        except InvalidSignature:
            raise Untrusted(what, f"key {key_id} has not signed this") from None
        return body

    def __repr__(self) -> str:
        return f"<Verifier {', '.join(self.ids)}>"


def new_key(folder: str | os.PathLike[str]) -> KeyFiles:
    """Make a key pair in a folder; a key that is there already is never replaced."""
    private, public = Path(folder, PRIVATE_NAME), Path(folder, PUBLIC_NAME)
    key = Ed25519PrivateKey.generate()
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    try:
        Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        _write_new(public, Signer(key).public_pem(), 0o644)
        _write_new(private, secret, 0o600)
    except FileExistsError:
        remedy = "a key is there already; give another folder, or move the old key away first"
        raise BadValue("key folder", os.fspath(folder), remedy) from None
    except OSError as error:
        raise Unavailable(f"the key folder {folder}", error.strerror or str(error)) from None
    return KeyFiles(private, public, _id_of(key.public_key()))


# Inside.


def _signed_bytes(kind: str, body: bytes) -> bytes:
    """What a signature covers: no two kinds or formats share a beginning."""
    return b"sluicegate signed document\0" + f"{kind}\0{FORMAT}\0".encode() + body


def _id_of(key: Ed25519PublicKey) -> str:
    raw = key.public_bytes(Encoding.Raw, PublicFormat.Raw)
    return sha256(raw).hexdigest()[:ID_CHARS]


def _public_key(pem: bytes, what: str) -> Ed25519PublicKey:
    if b"PRIVATE KEY" in pem:
        raise BadValue(what, "(not shown)", f"this is a private key; give {PUBLIC_NAME}")
    try:
        key = load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm):
        raise BadValue(what, "(not shown)", "it is no public key in PEM") from None
    if not isinstance(key, Ed25519PublicKey):
        raise BadValue(what, "(not shown)", "it is no Ed25519 key")
    return key


def _read_key(path: str, *, private: bool) -> bytes:
    try:
        # A pipe under this name must not make us wait for its writer.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, "rb") as file:
            mode = os.fstat(handle).st_mode
            if not stat.S_ISREG(mode):
                raise BadValue("key", path, "give a plain file")
            if private and mode & 0o077:
                mode_text = f"{stat.S_IMODE(mode):04o}"
                remedy = f"others may read or write it (mode {mode_text}); chmod 600 it"
                raise BadValue("signing key", path, remedy)
            return file.read(KEY_BYTES_MAX)
    except OSError as error:
        raise Unavailable(f"the key {path}", error.strerror or str(error)) from None


def _write_new(path: Path, data: bytes, mode: int) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFELY, mode)
    with open(handle, "wb") as file:
        os.fchmod(handle, mode)
        file.write(data)
        file.flush()
        os.fsync(handle)


class SignedRelease(NamedTuple):
    """A release, and the envelope it came in."""

    release: Release
    signed: bytes


class SignedRollout(NamedTuple):
    """A rollout, and the envelope it came in."""

    rollout: Rollout
    signed: bytes


def sign_release(release: Release, signer: Signer) -> SignedRelease:
    """Sign a release; `BadValue` names what it may not be."""
    return SignedRelease(release, signer.sign(RELEASE, release_bytes(release)))


def sign_rollout(rollout: Rollout, signer: Signer) -> SignedRollout:
    """Sign a rollout; `BadValue` names what it may not be."""
    return SignedRollout(rollout, signer.sign(ROLLOUT, rollout_bytes(rollout)))


def open_release(signed: bytes, verifier: Verifier, *, version: int | None = None) -> SignedRelease:
    """Verify a signed release; where a version was asked for, it must be that one."""
    release = read_release(verifier.open(RELEASE, signed))
    if version is not None and release.version != version:
        remedy = f"it was asked for as release {version}; put each under its own version"
        raise BadValue("edition.version", release.version, remedy)
    return SignedRelease(release, signed)


def open_rollout(signed: bytes, verifier: Verifier, *, number: int | None = None) -> SignedRollout:
    """Verify a signed rollout; where a number was asked for, it must have that one."""
    rollout = read_rollout(verifier.open(ROLLOUT, signed))
    if number is not None and rollout.number != number:
        remedy = f"it was asked for as rollout {number}; put each under its own number"
        raise BadValue("orders.number", rollout.number, remedy)
    return SignedRollout(rollout, signed)
