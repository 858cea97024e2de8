"""Signed tokens: short-lived JWTs (RFC 7519) by which an account lets its own users in.

A token names an account, which must be a caller of the access file, and a client of it; it has the
rights in channels that its claims list, and never more than its account. `exp` is required and at
most `--jwt-lifetime-s` away, so a token that was stolen is worth little.

The claims are verified here, by our clock; the signature by PyJWT, with the algorithm of the key.
Bound: `TOKEN_CHARS_MAX` characters of a token.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, final

from sluicegate.contracts.access import Grant, Identity
from sluicegate.contracts.channel_scope import ChannelRight, ChannelScope
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import BadValue, Unauthenticated
from sluicegate.service.signing_keys import SigningKeys
from sluicegate.service.token_settings import SignedTokenSettings

TOKEN_CHARS_MAX: Final = 4_096
CLIENT_CHARS_MAX: Final = 256
CLOCKS_DIFFER_S: Final = 30.0  # between who signs and us
RENEWAL: Final = "get a new token from the backend of the account"
_US: Final = 1_000_000
_GRANTS: Final = frozenset({Grant.PUBLISH, Grant.SUBSCRIBE})
_RIGHTS: Final = {one.value: one for one in ChannelRight}
_SIGNATURE_ALONE: Final[Any] = {
    f"verify_{one}": False for one in ("exp", "nbf", "iat", "aud", "iss", "sub", "jti")
}


def _invalid(problem: str) -> Unauthenticated:
    return Unauthenticated(RENEWAL, problem)


def is_signed(token: str) -> bool:
    """Whether a token is a JWT; a token of `--new-token` has no dot."""
    return token.count(".") == 2


@final
class SignedTokens:
    """Makes identities of signed tokens. Raises `Unauthenticated` with the fault of a token."""

    def __init__(self, settings: SignedTokenSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self.keys = SigningKeys(settings.jwt_secret, settings.jwt_keys)
        import jwt  # noqa: PLC0415 - an extra, which the keys need too

        self._jwt = jwt

    def identify(self, token: str, account_of: Callable[[str], Identity | None]) -> Identity:
        """Return the caller that a token speaks for; `account_of` finds callers by name."""
        if len(token) > TOKEN_CHARS_MAX:
            raise _invalid(f"the token has more than {TOKEN_CHARS_MAX:,} characters")
        header = self._header(token)
        name = header.get("kid")
        for key in self.keys.find(str(header.get("alg")), name if isinstance(name, str) else None):
            claims = self._verified(token, key.key, key.algorithm)
            if claims is not None:
                break
        else:
            raise _invalid("the token is signed by no key that is known here")
        until_us = self._check_times(claims)
        self._check_parties(claims)
        account = account_of(_text(claims, "account"))
        if account is None:
            raise _invalid("the token's account is no caller of the access file")
        return Identity(
            account.name,
            account.grants & _GRANTS,
            criticality=account.criticality,
            highest=account.highest,
            standings=(key.standing, *account.standings),
            until_us=until_us,
            client=_text(claims, "sub"),
            channels=scope_of(claims.get("channels")),
        )

    def _header(self, token: str) -> Mapping[str, Any]:
        try:
            header: Mapping[str, Any] = self._jwt.get_unverified_header(token)
        except (self._jwt.PyJWTError, ValueError):
            raise _invalid("the token cannot be read") from None
        if "crit" in header:
            raise _invalid("the token needs an extension that is not understood here")
        return header

    def _verified(self, token: str, key: Any, algorithm: str) -> Mapping[str, Any] | None:
        try:
            claims: Mapping[str, Any] = self._jwt.decode(
                token, key, algorithms=[algorithm], options=_SIGNATURE_ALONE
            )
        except (self._jwt.PyJWTError, ValueError):
            return None
        return claims

    def _check_times(self, claims: Mapping[str, Any]) -> int:
        now_s = self._clock.now_us() / _US
        until_s = _number(claims, "exp")
        if until_s is None:
            raise _invalid("the token needs exp, the time it expires")
        if until_s <= now_s:
            raise _invalid("the token has expired")
        if until_s - now_s > self._settings.jwt_lifetime_s + CLOCKS_DIFFER_S:
            raise _invalid(
                f"the token expires in more than {self._settings.jwt_lifetime_s:g} s; "
                "sign a shorter one, or raise --jwt-lifetime-s"
            )
        for name in ("nbf", "iat"):
            since_s = _number(claims, name)
            if since_s is not None and since_s > now_s + CLOCKS_DIFFER_S:
                raise _invalid(f"the token is not valid yet: {name} is in the future")
        return int(until_s * _US)

    def _check_parties(self, claims: Mapping[str, Any]) -> None:
        settings = self._settings
        if settings.jwt_issuer and claims.get("iss") != settings.jwt_issuer:
            raise _invalid("the token has another issuer than --jwt-issuer")
        found = claims.get("aud")
        audiences = found if isinstance(found, list) else [found]
        if settings.jwt_audience and settings.jwt_audience not in audiences:
            raise _invalid("the token is for another audience than --jwt-audience")


def scope_of(found: object) -> ChannelScope:
    """Return the rights of the claim `channels`; raise for what cannot be understood whole."""
    if not isinstance(found, dict):
        raise _invalid('the token needs channels, as {"news": ["subscribe"]}')
    rights: dict[str, list[ChannelRight]] = {}
    for pattern, listed in found.items():
        if not isinstance(listed, list) or not all(
            isinstance(one, str) and one in _RIGHTS for one in listed
        ):
            names = ", ".join(_RIGHTS)
            raise _invalid(f"the token's channels need lists of {names}")
        rights[pattern] = [_RIGHTS[one] for one in listed]
    try:
        return ChannelScope(rights)
    except BadValue as error:
        raise _invalid(f"the token's channels are invalid: {error.remedy}") from None


def _text(claims: Mapping[str, Any], name: str) -> str:
    value = claims.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= CLIENT_CHARS_MAX:
        raise _invalid(f"the token needs {name}, 1 to {CLIENT_CHARS_MAX} characters")
    return value


def _number(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    # An integer may be too large for a float.
    if isinstance(value, bool) or not isinstance(value, int | float) or not -1e15 < value < 1e15:
        raise _invalid(f"the token needs a number of seconds in {name}")
    return float(value)
