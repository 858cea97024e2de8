"""OpenID Connect: who logs in at a provider, and what its word lets them do here.

The code flow with PKCE. A login is begun here and ends at `/login/back` in the same browser, which
a cookie of a few minutes shows; what comes back without one is refused, so nobody can be logged in
as somebody else. The provider's word is an ID token, and counts only if its keys have signed it,
for this client, just now, for this login. Its groups become grants by a table of the settings; who
has none of them is nobody.

Calls to the provider block, so threads make them. Bounds: `LOGINS_MAX` under way,
`ANSWER_BYTES_MAX` of an answer, `TIMEOUT_S` for each.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import ssl
import urllib.error
import urllib.request
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import Any, Final, NamedTuple, final
from urllib.parse import quote, urlencode, urlsplit

from sluicegate.apps.console.groups import check_provider_url
from sluicegate.apps.console.sessions import SESSIONS_MAX, cookie_in
from sluicegate.contracts.access import Grant, Identity
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import BadValue, MissingPackage, SluicegateError, Unavailable

CALLBACK: Final = "/login/back"
COOKIE: Final = "sluicegate-login"
LOGIN_S: Final = 300
LOGINS_MAX: Final = 1_000
TIMEOUT_S: Final = 10.0
ANSWER_BYTES_MAX: Final = 1 << 20
CLOCKS_DIFFER_S: Final = 30
ANYBODY: Final = "*"  # of groups: whoever the provider knows
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA")
_DISCOVERY: Final = "/.well-known/openid-configuration"
_US: Final = 1_000_000


class LoginRefused(SluicegateError):  # noqa: N818 - as its siblings
    """The provider's word does not let anybody in; the message says why."""


class OidcSettings(NamedTuple):
    """The provider, and what it says of people."""

    issuer: str
    client: str
    secret: str
    url: str  # of the console, as browsers write it
    name_claim: str
    groups_claim: str
    grants: Mapping[str, frozenset[Grant]]  # by group
    ca: str = ""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """What a provider says of itself is where it is; a code and a secret go nowhere else."""

    def redirect_request(self, *_: Any) -> None:
        """Follow none."""


class _Login(NamedTuple):
    nonce: str
    verifier: str
    path: str  # where they wanted to go
    until_us: int


@final
class OidcLogins:
    """Logins at one provider, and who has logged in."""

    def __init__(self, settings: OidcSettings, clock: Clock) -> None:
        try:
            import jwt  # noqa: PLC0415 - an extra
        except ModuleNotFoundError:
            raise MissingPackage("jwt", "oidc") from None
        self._jwt = jwt
        self._settings = settings
        self._clock = clock
        self._logins: OrderedDict[str, _Login] = OrderedDict()
        self._people: OrderedDict[str, Identity] = OrderedDict()
        self._pool = ThreadPoolExecutor(4, "console-oidc")
        try:
            self._tls = ssl.create_default_context(cafile=settings.ca or None)
        except (OSError, ssl.SSLError) as error:
            raise BadValue("--oidc-ca", settings.ca, f"it cannot be read: {error}") from None
        self._opener = urllib.request.build_opener(
            urllib.request.HTTPSHandler(context=self._tls), _NoRedirects()
        )
        self._about: dict[str, Any] = {}
        self._keys: Any = None

    @property
    def host(self) -> str:
        """Whom one logs in at."""
        return urlsplit(self._settings.issuer).netloc

    def person(self, key: str) -> Identity | None:
        """Return who has this key, which their session keeps."""
        return self._people.get(key)

    async def begin(self, path: str) -> tuple[str, bytes]:
        """Return where to send the browser, and the cookie that it brings back."""
        about = await self._run(self._discover)
        state, nonce, verifier = _random(), _random(), _random()
        until_us = self._clock.now_us() + LOGIN_S * _US
        self._logins[state] = _Login(nonce, verifier, path, until_us)
        while len(self._logins) > LOGINS_MAX:
            self._logins.popitem(last=False)
        asked = {
            "response_type": "code",
            "client_id": self._settings.client,
            "redirect_uri": self._settings.url + CALLBACK,
            "scope": "openid email profile",
            "state": state,
            "nonce": nonce,
            "code_challenge": _encoded(sha256(verifier.encode()).digest()),
            "code_challenge_method": "S256",
        }
        joint = "&" if "?" in about["authorization_endpoint"] else "?"
        url = about["authorization_endpoint"] + joint + urlencode(asked)
        return url, self._cookie(state, LOGIN_S)

    async def end(self, answer: Mapping[str, str], cookies: bytes) -> tuple[str, str, bytes]:
        """Return the key of who has logged in, where they wanted to go, and the cookie's end."""
        state = answer.get("state", "")
        login = self._logins.pop(state, None)
        if login is None or login.until_us < self._clock.now_us():
            raise LoginRefused("this login is over, or was not begun here; log in again")
        if cookie_in(cookies, COOKIE) != state:
            raise LoginRefused("this login was begun in another browser; log in again")
        if "code" not in answer:
            said = answer.get("error_description") or answer.get("error") or "no code"
            raise LoginRefused(f"{self.host} says: {said[:200]}")
        claims = await self._run(self._claims, answer["code"], login)
        identity = identity_of(claims, self._settings)
        key = _random()
        self._people[key] = identity
        while len(self._people) > SESSIONS_MAX:
            self._people.popitem(last=False)
        return key, login.path, self._cookie("", 0)

    async def close(self) -> None:
        """Wait for the calls that are under way."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._pool.shutdown)

    async def _run(self, work: Any, *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, *arguments)

    def _cookie(self, value: str, age_s: int) -> bytes:
        # Lax, not Strict: the provider's page sends the browser back.
        secure = "; Secure" if self._settings.url.startswith("https:") else ""
        return (
            f"{COOKIE}={value}; Path={CALLBACK}; Max-Age={age_s}; HttpOnly; SameSite=Lax{secure}"
        ).encode()

    def _discover(self) -> dict[str, Any]:
        if not self._about:
            about = self._ask(self._settings.issuer.rstrip("/") + _DISCOVERY)
            if str(about.get("issuer", "")).rstrip("/") != self._settings.issuer.rstrip("/"):
                raise LoginRefused(f"{self.host} says that it is {about.get('issuer')!r}")
            for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
                check_provider_url(str(about.get(name, "")), f"{name} of {self.host}")
            self._keys = self._jwt.PyJWKClient(
                about["jwks_uri"], timeout=TIMEOUT_S, ssl_context=self._tls
            )
            self._about = about
        return self._about

    def _claims(self, code: str, login: _Login) -> Mapping[str, Any]:
        about = self._discover()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._settings.url + CALLBACK,
            "client_id": self._settings.client,
            "code_verifier": login.verifier,
        }
        answer = self._ask(about["token_endpoint"], form)
        token = answer.get("id_token")
        if not isinstance(token, str):
            raise LoginRefused(f"{self.host} gave no ID token")
        try:
            key = self._key_of(token)
            claims: Mapping[str, Any] = self._jwt.decode(
                token,
                key,
                algorithms=[*ALGORITHMS],
                audience=self._settings.client,
                issuer=about["issuer"],
                leeway=CLOCKS_DIFFER_S,
                options={"require": ["exp", "iat", "sub"]},
            )
        except self._jwt.PyJWTError as error:
            raise LoginRefused(f"the ID token of {self.host} does not count: {error}") from None
        if claims.get("nonce") != login.nonce:
            raise LoginRefused("the ID token is for another login")
        if claims.get("azp", self._settings.client) != self._settings.client:
            raise LoginRefused("the ID token was made for another client")
        return claims

    def _key_of(self, token: str) -> Any:
        """Return the key that the token names, or the only one that there is."""
        if "kid" in self._jwt.get_unverified_header(token):
            return self._keys.get_signing_key_from_jwt(token)
        only, *others = self._keys.get_signing_keys()
        if others:
            raise self._jwt.PyJWKClientError("it names none of several keys")
        return only

    def _ask(self, url: str, form: Mapping[str, str] | None = None) -> dict[str, Any]:
        request = urllib.request.Request(url, headers={"Accept": "application/json"})
        if form is not None:
            request.data = urlencode(form).encode()
            if self._settings.secret:
                pair = f"{quote(self._settings.client)}:{quote(self._settings.secret)}".encode()
                request.add_header("Authorization", f"Basic {base64.b64encode(pair).decode()}")
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as reply:
                found = json.loads(reply.read(ANSWER_BYTES_MAX))
        except urllib.error.HTTPError as error:
            with error:
                raise LoginRefused(f"{self.host} answers {error.code} {error.reason}") from None
        except (OSError, ValueError) as error:
            raise Unavailable(self.host, str(error)) from None
        if not isinstance(found, dict):
            raise LoginRefused(f"{self.host} gives an answer that cannot be understood")
        return found


def identity_of(claims: Mapping[str, Any], settings: OidcSettings) -> Identity:
    """Return who this is, with the grants of all their groups; raise if there are none."""
    name = claims.get(settings.name_claim) or claims["sub"]
    if settings.name_claim == "email" and claims.get("email_verified") is False:
        raise LoginRefused("the provider has not verified this address")
    found = claims.get(settings.groups_claim, ())
    groups: Sequence[Any] = found if isinstance(found, list | tuple) else [found]
    granted: set[Grant] = set(settings.grants.get(ANYBODY, ()))
    for group in groups:
        granted |= settings.grants.get(str(group), frozenset())
    if not granted:
        raise LoginRefused(f"{str(name)[:200]} is in no group that may use this console")
    return Identity(str(name)[:200], granted)


def _random() -> str:
    return _encoded(os.urandom(32))


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
