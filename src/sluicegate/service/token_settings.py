"""Settings of signed tokens, apart from what verifies them: a service is described without it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final
from urllib.parse import urlsplit

from sluicegate.contracts.errors import BadValue
from sluicegate.service.settings import Setting, SettingsBase, seconds

_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, kw_only=True)
class SignedTokenSettings(SettingsBase):
    """Signed tokens."""

    jwt_secret: Annotated[
        tuple[str, ...],
        Setting("shared secret of HS256 tokens, 32 bytes or more", metavar="FILE"),
    ] = ()
    jwt_keys: Annotated[
        str,
        Setting("JWKS of RS256 and ES256 tokens, a file or an https URL", metavar="FILE|URL"),
    ] = ""
    jwt_issuer: Annotated[str, Setting("required iss of a token", metavar="TEXT")] = ""
    jwt_audience: Annotated[str, Setting("required aud of a token", metavar="TEXT")] = ""
    jwt_lifetime_s: Annotated[
        float, Setting("longest time until a token expires", seconds(1, 86_400))
    ] = 3_600.0

    @property
    def accepts_signed_tokens(self) -> bool:
        """Whether there is a key to verify tokens with."""
        return bool(self.jwt_secret or self.jwt_keys)

    def check(self) -> None:
        """Raise for keys over an open connection, or a claim that is set without keys."""
        super().check()
        check_source(self.jwt_keys, "--jwt-keys")
        for name, value in (("issuer", self.jwt_issuer), ("audience", self.jwt_audience)):
            if value and not self.accepts_signed_tokens:
                raise BadValue(f"--jwt-{name}", value, "add --jwt-secret or --jwt-keys")


def is_url(source: str) -> bool:
    """Whether public keys are fetched, and not read from a file."""
    return "://" in source


def check_source(source: str, field: str) -> None:
    """Raise for a URL over which others could replace the keys."""
    at = urlsplit(source)
    secure = at.scheme == "https" and at.hostname
    local = at.scheme == "http" and at.hostname in _LOOPBACK
    if is_url(source) and not (secure or local):
        raise BadValue(field, source, "give an https:// URL, an http:// URL of loopback, or a file")
