"""OpenID Connect: who logs in at a provider, and what its word lets them do here.

The code flow with PKCE. A login begins here and ends at `/login/back` in the same browser. State,
nonce and verifier travel in a sealed cookie that is valid for `LOGIN_S`, so a login takes no memory
here and no number of logins can crowd out another. A callback without that cookie is rejected, so
a person cannot be logged in as another one. The ID token counts only if the provider's keys have
signed it, for this client, just now, for this login. A table of the settings maps its groups to
grants; a person without any grant cannot log in.

A person's grants are sealed too, in the token that their session keeps. A restart makes new keys,
so it ends all sessions and logins. Calls to the provider block, so threads make them. Bounds:
`ANSWER_BYTES_MAX` of an answer, `TIMEOUT_S` for each, `COOKIE_CHARS_MAX` of a cookie.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from hmac import compare_digest
from typing import Any, Final, NamedTuple, cast, final
from urllib.parse import quote, urlencode, urlsplit

from sluicegate.apps.console.sessions import cookie_in
from sluicegate.apps.console.settings import check_provider_url
from sluicegate.contracts.access import Grant, Identity
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import BadValue, MissingPackage, SluicegateError, Unavailable

CALLBACK: Final = "/login/back"
COOKIE: Final = "sluicegate-login"
LOGIN_S: Final = 300
COOKIE_CHARS_MAX: Final = 3_800  # browsers keep 4,096 with the name and the attributes
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
    state: str
    nonce: str
    verifier: str
    path: str  # the page that was requested


@final
class OidcLogins:
    """Logins at one provider, and who has logged in."""

    def __init__(self, settings: OidcSettings, clock: Clock) -> None:
        try:
            import jwt  # noqa: PLC0415 - an extra
            from cryptography.fernet import Fernet  # noqa: PLC0415
        except ModuleNotFoundError as error:
            raise MissingPackage((error.name or "jwt").partition(".")[0], "oidc") from None
        self._jwt = jwt
        self._settings = settings
        self._clock = clock
        self._login_seal = Fernet(Fernet.generate_key())
        self._person_seal = Fernet(Fernet.generate_key())
        self._pool = ThreadPoolExecutor(4, "console-oidc")
        try:
            self._tls = ssl.create_default_context(cafile=settings.ca or None)
        except (OSError, ssl.SSLError) as error:
            raise BadValue("--ca", settings.ca, f"it cannot be read: {error}") from None
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
        """Return the person whose session keeps this key; None if it was not sealed here."""
        found = _opened(self._person_seal, key, None, 0)
        if found is None:
            return None
        name, *grants = json.loads(found)
        return Identity(name, {Grant(one) for one in grants})

    async def begin(self, path: str) -> tuple[str, bytes]:
        """Return where to send the browser, and the cookie that it brings back."""
        about = await self._run(self._discover)
        state, nonce, verifier = _random(), _random(), _random()
        sealed = self._sealed(_Login(state, nonce, verifier, path))
        if len(sealed) > COOKIE_CHARS_MAX:
            sealed = self._sealed(_Login(state, nonce, verifier, "/"))
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
        return url, self._cookie(sealed, LOGIN_S)

    async def end(self, answer: Mapping[str, str], cookies: bytes) -> tuple[str, str, bytes]:
        """Return the key of who has logged in, where they wanted to go, and the cookie's end."""
        found = _opened(self._login_seal, cookie_in(cookies, COOKIE), LOGIN_S, self._now_s())
        if found is None:
            raise LoginRefused("this login has expired or began in another browser; log in again")
        login = _Login(*json.loads(found))
        if not compare_digest(login.state.encode(), answer.get("state", "").encode()):
            raise LoginRefused("another login was begun since in this browser; log in again")
        if "code" not in answer:
            said = answer.get("error_description") or answer.get("error") or "no code"
            raise LoginRefused(f"{self.host} says: {said[:200]}")
        claims = await self._run(self._claims, answer["code"], login)
        identity = identity_of(claims, self._settings)
        grants = sorted(grant.value for grant in identity.grants)
        key = self._person_seal.encrypt(json.dumps([identity.name, *grants]).encode())
        return key.decode(), login.path, self._cookie("", 0)

    async def close(self) -> None:
        """Wait for the calls that are under way."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._pool.shutdown)

    def _sealed(self, login: _Login) -> str:
        text = json.dumps(login).encode()
        return self._login_seal.encrypt_at_time(text, self._now_s()).decode()

    def _now_s(self) -> int:
        return self._clock.now_us() // _US

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


def _opened(seal: Any, text: str, for_s: int | None, now_s: int) -> bytes | None:
    """Return what is sealed in a text; None if it is not, or is older than `for_s`."""
    from cryptography.fernet import InvalidToken  # noqa: PLC0415 - an extra

    try:
        if for_s is None:
            return cast("bytes", seal.decrypt(text.encode()))
        return cast("bytes", seal.decrypt_at_time(text.encode(), for_s, now_s))
    except (InvalidToken, UnicodeError):
        return None


def _random() -> str:
    return _encoded(os.urandom(32))


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
