"""Signing keys: the secrets and public keys that signed tokens are verified with.

A key has one algorithm, and a token is verified with the algorithm of its key: what its header says
only selects the key. Public keys come from a JWKS (RFC 7517), a file or a URL. A URL is read again
every `REFRESH_S`, and earlier when a token names an unknown key, but at most once in `PAUSE_S`. A
source that cannot be read changes nothing. A key that is gone ends what its tokens opened.

Bounds: `SECRETS_MAX` secrets, `KEYS_MAX` public keys, `SOURCE_BYTES_MAX` of a file or an answer.
"""

from __future__ import annotations

import asyncio
import json
import logging
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, final

from sluicegate.contracts.access import WITHDRAWN, Standing
from sluicegate.contracts.errors import BadValue, MissingPackage, Unavailable
from sluicegate.service.token_settings import is_url

REFRESH_S: Final = 300.0
PAUSE_S: Final = 10.0
TIMEOUT_S: Final = 5.0
SOURCE_BYTES_MAX: Final = 256 << 10
SECRETS_MAX: Final = 8
SECRET_BYTES_MIN: Final = 32  # RFC 7518 section 3.2: as long as the hash
KEYS_MAX: Final = 100
RSA_BITS_MIN: Final = 2_048
HS256: Final = "HS256"
RS256: Final = "RS256"
ES256: Final = "ES256"
_KINDS: Final = {"RSA": RS256, "EC": ES256}
_log: Final = logging.getLogger("sluicegate.tokens")


@final
class SigningKey:
    """One key: its algorithm, its name in a JWKS, and whether it still counts."""

    __slots__ = ("algorithm", "digest", "key", "name", "standing")

    def __init__(self, algorithm: str, key: Any, digest: bytes, name: str = "") -> None:
        self.algorithm = algorithm
        self.key = key
        self.digest = digest
        self.name = name
        self.standing = Standing()


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """The URL that was set is where the keys are."""

    def redirect_request(self, *_: Any) -> None:
        """Follow none."""


@final
class SigningKeys:
    """The current keys. `reload` reads the files again; `refresh` and `keep` fetch the URL."""

    def __init__(self, secrets: Sequence[str], source: str) -> None:
        try:
            import jwt  # noqa: PLC0415 - an extra
        except ModuleNotFoundError:
            raise MissingPackage("jwt", "jwt") from None
        self._jwt = jwt
        self._paths = tuple(secrets)
        self._source = source
        self._secrets: list[SigningKey] = []
        self._public: list[SigningKey] = []
        self._wanted = asyncio.Event()
        self._pausing = False  # the URL was read just now
        self._opener = urllib.request.build_opener(_NoRedirects())
        self.reload()

    def reload(self) -> None:
        """Read secrets and a file of keys again; raises, and changes nothing, if one is bad."""
        if len(self._paths) > SECRETS_MAX:
            raise BadValue("--jwt-secret", len(self._paths), f"give at most {SECRETS_MAX}")
        secrets = [_read_secret(path) for path in self._paths]
        public = None
        if self._source and not is_url(self._source):
            public = self._parse(_read(self._source, "--jwt-keys"), self._source)
        self._secrets = _succeed(self._secrets, secrets)
        if public is not None:
            self._public = _succeed(self._public, public)

    def find(self, algorithm: str, name: str | None) -> Sequence[SigningKey]:
        """Return the keys that a token's header selects. Raises `Unavailable` while they come."""
        if algorithm == HS256:
            return self._secrets
        found = [
            one
            for one in self._public
            if one.algorithm == algorithm and (name is None or one.name == name)
        ]
        if name is None and len(found) > 1:
            return ()  # it must name one of several
        comes = not self._pausing and is_url(self._source) and algorithm in _KINDS.values()
        if comes and not found:
            self._wanted.set()
            raise Unavailable("the signing keys", "the key of this token is being fetched")
        return found

    @property
    def fetched(self) -> bool:
        """Whether the public keys have a URL, so that `refresh` and `keep` are needed."""
        return is_url(self._source)

    async def keep(self) -> None:
        """Fetch the keys again and again; `refresh` was called before."""
        while True:
            # A bound for tokens that name unknown keys.
            self._pausing = True
            await asyncio.sleep(PAUSE_S)
            self._pausing = False
            self._wanted.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(REFRESH_S):
                    await self._wanted.wait()
            await self.refresh()

    async def refresh(self) -> None:
        """Fetch the keys; a failure is logged and changes nothing."""
        try:
            text = await asyncio.to_thread(self._fetch)
            self._public = _succeed(self._public, self._parse(text, self._source))
        except (OSError, ValueError, BadValue) as error:
            _log.warning("the signing keys of %s are not replaced: %s", self._source, error)

    def _fetch(self) -> bytes:
        with self._opener.open(self._source, timeout=TIMEOUT_S) as reply:
            text = reply.read(SOURCE_BYTES_MAX + 1)
        assert isinstance(text, bytes)
        return text

    def _parse(self, text: bytes, where: str) -> list[SigningKey]:
        if len(text) > SOURCE_BYTES_MAX:
            raise BadValue(where, f"{len(text):,} bytes", f"give at most {SOURCE_BYTES_MAX:,}")
        try:
            found = json.loads(text)
        except ValueError:
            found = None
        listed = found.get("keys") if isinstance(found, dict) else None
        if not isinstance(listed, list) or len(listed) > KEYS_MAX:
            raise BadValue(where, "(not shown)", f"give a JWKS of at most {KEYS_MAX} keys")
        return [key for one in listed if (key := self._public_key(one)) is not None]

    def _public_key(self, found: Any) -> SigningKey | None:
        """Return one key of a JWKS; None if it is for something else, or too weak."""
        if not isinstance(found, dict) or found.get("use", "sig") != "sig":
            return None
        algorithm = _KINDS.get(str(found.get("kty")))
        if algorithm is None or found.get("alg", algorithm) != algorithm:
            return None
        if algorithm == ES256 and found.get("crv") != "P-256":
            return None
        public: Mapping[str, Any] = {name: found.get(name) for name in ("kty", "n", "e", "x", "y")}
        known = {name: value for name, value in public.items() if value is not None}
        if algorithm == ES256:
            known["crv"] = "P-256"
        try:
            key: Any = self._jwt.PyJWK({**known, "alg": algorithm}).key
        except self._jwt.PyJWTError:
            return None
        if algorithm == RS256 and key.key_size < RSA_BITS_MIN:
            return None
        digest = sha256(json.dumps(known, sort_keys=True).encode()).digest()
        return SigningKey(algorithm, key, digest, str(found.get("kid", "")))


def _read(path: str, field: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(SOURCE_BYTES_MAX + 1)
    except OSError as error:
        raise BadValue(field, path, f"it cannot be read: {error.strerror}") from None


def _read_secret(path: str) -> SigningKey:
    secret = _read(path, "--jwt-secret").strip()
    if len(secret) < SECRET_BYTES_MIN or len(secret) > SOURCE_BYTES_MAX:
        remedy = f"give at least {SECRET_BYTES_MIN} bytes, as `openssl rand -base64 32` does"
        raise BadValue("--jwt-secret", path, remedy)
    if secret.startswith(b"-----BEGIN "):
        raise BadValue("--jwt-secret", path, "give a secret, not a PEM file; see --jwt-keys")
    return SigningKey(HS256, secret, sha256(secret).digest())


def _succeed(before: Sequence[SigningKey], now: Sequence[SigningKey]) -> list[SigningKey]:
    """Return the new keys; those that were there stay, those that are gone count no more."""
    old = {(one.digest, one.name): one for one in before}
    kept = [old.pop((one.digest, one.name), one) for one in now]
    for one in old.values():
        one.standing.ended = WITHDRAWN
    return kept
