"""Signed tokens: their keys, claims and times, on a clock moved by hand."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from sluicegate.contracts.access import WITHDRAWN, Grant, Identity
from sluicegate.contracts.channel_scope import ChannelRight
from sluicegate.contracts.errors import BadValue, Unauthenticated, Unavailable
from sluicegate.service.signed_tokens import (
    CLOCKS_DIFFER_S,
    RENEWAL,
    TOKEN_CHARS_MAX,
    SignedTokens,
)
from sluicegate.service.token_settings import SignedTokenSettings
from sluicegate.testing.clock import HandClock

NOW_S = 1_800_000_000
SECRET = b"0123456789abcdef0123456789abcdef"
SHOP = Identity("shop", [Grant.PUBLISH, Grant.SUBSCRIBE, Grant.AUDIT])
RSA_KEY = rsa.generate_private_key(65_537, 2_048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
CLAIMS: dict[str, Any] = {
    "account": "shop", "sub": "mia", "exp": NOW_S + 60, "channels": {"news": ["subscribe"]}
}  # fmt: skip


def jwk(key: Any, name: str = "", **more: Any) -> dict[str, Any]:
    kind = jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else (
        jwt.algorithms.ECAlgorithm
    )  # fmt: skip
    found: dict[str, Any] = json.loads(kind.to_jwk(key.public_key()))
    return {**found, **({"kid": name} if name else {}), **more}


class Bench:
    """Tokens that are verified, with keys in files."""

    def __init__(self, folder: Path, *keys: dict[str, Any], secret: bytes = SECRET, **more: Any):
        self.secret, self.jwks = folder / "secret", folder / "jwks.json"
        self.secret.write_bytes(secret + b"\n")
        self.write(*keys)
        settings = SignedTokenSettings(
            jwt_secret=(str(self.secret),) if secret else (), jwt_keys=str(self.jwks), **more
        )
        self.clock = HandClock(NOW_S * 1_000_000)
        self.tokens = SignedTokens(settings, self.clock)

    def write(self, *keys: dict[str, Any]) -> None:
        self.jwks.write_text(json.dumps({"keys": keys}))

    def identify(self, token: str) -> Identity:
        return self.tokens.identify(token, {"shop": SHOP}.get)

    def invalid(self, token: str) -> str:
        with pytest.raises(Unauthenticated) as error:
            self.identify(token)
        assert token not in str(error.value)
        assert error.value.remedy == RENEWAL
        return error.value.problem


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, jwk(RSA_KEY, "r"), jwk(EC_KEY, "e"))


def signed(key: Any = SECRET, algorithm: str = "HS256", kid: str = "", **claims: Any) -> str:
    sent = {name: value for name, value in {**CLAIMS, **claims}.items() if value is not None}
    return jwt.encode(sent, key, algorithm, headers={"kid": kid} if kid else None)


def forged(header: dict[str, Any], signature: bytes = b"") -> str:
    parts = (json.dumps(header).encode(), json.dumps(CLAIMS).encode(), signature)
    return ".".join(base64.urlsafe_b64encode(one).decode().rstrip("=") for one in parts)


@pytest.mark.parametrize(
    "make",
    [
        signed,
        lambda: signed(RSA_KEY, "RS256", "r"),
        lambda: signed(EC_KEY, "ES256", "e"),
        lambda: signed(RSA_KEY, "RS256"),  # the only key of its kind
    ],
    ids=["HS256", "RS256", "ES256", "no_kid"],
)
def test_valid_token_is_client_of_its_account(bench: Bench, make: Callable[[], str]) -> None:
    mia = bench.identify(make())
    assert (mia.name, mia.client) == ("shop", "mia")
    assert mia.grants == {Grant.PUBLISH, Grant.SUBSCRIBE}  # audit is not for clients
    assert mia.channels is not None
    assert mia.channels.allows("news", ChannelRight.SUBSCRIBE)
    assert mia.ended((NOW_S + 60) * 1_000_000 - 1) == ""
    assert mia.ended((NOW_S + 60) * 1_000_000) == "the token has expired"


def pem_of(key: Any) -> bytes:
    found: bytes = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return found


def hmac_with(secret: bytes, kid: str = "r") -> str:
    """HS256 by hand: PyJWT refuses to sign with a public key."""
    unsigned = forged({"alg": "HS256", "kid": kid}).rpartition(".")[0]
    signature = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).sign(
        unsigned.encode(), secret
    )
    return f"{unsigned}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"


@pytest.mark.parametrize(
    "make",
    [
        lambda: forged({"alg": "none"}),
        lambda: forged({"alg": "None", "kid": "r"}),
        lambda: forged({}),
        lambda: forged({"alg": "RS256", "kid": "r"}, b"x" * 256),
        lambda: hmac_with(pem_of(RSA_KEY)),
        lambda: hmac_with(json.dumps(jwk(RSA_KEY, "r")).encode()),
        lambda: hmac_with(b""),
        lambda: signed(RSA_KEY, "RS384", "r"),
        lambda: signed(RSA_KEY, "PS256", "r"),
        lambda: signed(RSA_KEY, "RS256", "e"),
        lambda: signed(SECRET * 2, "HS512"),
        lambda: signed(rsa.generate_private_key(65_537, 2_048), "RS256", "r"),
        lambda: signed(b"y" * 32),
        lambda: signed(RSA_KEY, "RS256", "unknown"),
    ],
)
def test_token_chooses_no_algorithm_and_no_key(bench: Bench, make: Callable[[], str]) -> None:
    assert bench.invalid(make()) == "the token is signed by no key that is known here"


def test_symmetric_key_of_jwks_is_ignored(tmp_path: Path) -> None:
    secret = {"kty": "oct", "k": base64.urlsafe_b64encode(SECRET).decode(), "kid": "s"}
    weak = jwk(rsa.generate_private_key(65_537, 1_024), "w")
    bench = Bench(tmp_path, secret, weak, jwk(RSA_KEY, "x", use="enc"), secret=b"z" * 32)
    assert "no key" in bench.invalid(signed(SECRET, "HS256", "s"))
    assert "no key" in bench.invalid(signed(RSA_KEY, "RS256", "x"))
    assert bench.tokens.keys.find("RS256", "w") == []


def test_extension_in_header_is_invalid(bench: Bench) -> None:
    for names in (["exp"], ["b64"], []):
        bench.invalid(jwt.encode(CLAIMS, SECRET, "HS256", headers={"crit": names}))


@pytest.mark.parametrize(
    ("claims", "problem"),
    [
        ({"exp": None}, "needs exp"),
        ({"exp": NOW_S}, "expired"),
        ({"exp": "soon"}, "number of seconds in exp"),
        ({"exp": True}, "number of seconds in exp"),
        ({"exp": 10**400}, "number of seconds in exp"),
        ({"exp": NOW_S + 3_600 + CLOCKS_DIFFER_S + 1}, "--jwt-lifetime-s"),
        ({"nbf": NOW_S + CLOCKS_DIFFER_S + 1}, "nbf is in the future"),
        ({"iat": NOW_S + CLOCKS_DIFFER_S + 1}, "iat is in the future"),
        ({"sub": None}, "needs sub"),
        ({"sub": ""}, "needs sub"),
        ({"sub": "x" * 257}, "needs sub"),
        ({"account": None}, "needs account"),
        ({"account": "other"}, "no caller of the access file"),
        ({"channels": None}, "needs channels"),
        ({"channels": ["news"]}, "needs channels"),
        ({"channels": {"news": "subscribe"}}, "lists of publish"),
        ({"channels": {"news": ["admin"]}}, "lists of publish"),
        ({"channels": {"n*s": ["publish"]}}, "channels are invalid"),
    ],
)
def test_claim_that_is_wrong_is_named(bench: Bench, claims: dict[str, Any], problem: str) -> None:
    assert problem in bench.invalid(signed(**claims))


def test_issuer_and_audience_must_be_those_of_settings(tmp_path: Path) -> None:
    bench = Bench(tmp_path, jwt_issuer="me", jwt_audience="here")
    assert bench.identify(signed(iss="me", aud=["there", "here"])).client == "mia"
    assert bench.identify(signed(iss="me", aud="here")).client == "mia"
    assert "issuer" in bench.invalid(signed(aud="here"))
    assert "issuer" in bench.invalid(signed(iss="you", aud="here"))
    audiences: list[Any] = [None, "there", [], {"here": 1}]
    for audience in audiences:
        assert "audience" in bench.invalid(signed(iss="me", aud=audience))


@pytest.mark.parametrize(
    "token", ["..", "a.b.c", "x" * (TOKEN_CHARS_MAX + 1), "\u00e9.b.c", "e30.e30."]
)
def test_text_that_is_no_token_is_invalid(bench: Bench, token: str) -> None:
    bench.invalid(token)


def test_keys_that_stay_keep_their_tokens(bench: Bench) -> None:
    by_rsa = bench.identify(signed(RSA_KEY, "RS256", "r"))
    by_ec, by_secret = bench.identify(signed(EC_KEY, "ES256", "e")), bench.identify(signed())
    bench.write(jwk(EC_KEY, "e"))
    bench.tokens.keys.reload()
    assert [one.ended(0) for one in (by_rsa, by_ec, by_secret)] == [WITHDRAWN, "", ""]
    bench.write({"kty": "RSA"})
    bench.secret.write_bytes(b"short")
    with pytest.raises(BadValue, match="--jwt-secret"):
        bench.tokens.keys.reload()
    assert bench.identify(signed(EC_KEY, "ES256", "e")).ended(0) == ""


def test_tokens_end_with_their_account(tmp_path: Path) -> None:
    account = Identity("shop", [Grant.PUBLISH])
    mia = Bench(tmp_path).tokens.identify(signed(), {"shop": account}.get)
    account.revoke()
    assert mia.ended(0) == "access was revoked or reduced"


def test_unknown_key_is_fetched_once_in_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        settings = SignedTokenSettings(jwt_keys="http://127.0.0.1:1/jwks")
        tokens = SignedTokens(settings, HandClock(NOW_S * 1_000_000))
        keys, fetched = tokens.keys, asyncio.Event()
        pauses: asyncio.Queue[None] = asyncio.Queue()
        served: list[dict[str, Any]] = []

        async def pause(_: float) -> None:
            await pauses.get()

        def fetch() -> bytes:
            fetched.set()
            return json.dumps({"keys": served}).encode()

        monkeypatch.setattr("sluicegate.service.signing_keys.asyncio.sleep", pause)
        monkeypatch.setattr(keys, "_fetch", fetch)

        async def pausing(*, now: bool) -> None:
            while keys._pausing is not now:
                await asyncio.wait((kept,), timeout=0.001)

        await keys.refresh()
        kept = asyncio.create_task(keys.keep())
        await pausing(now=True)
        token = signed(RSA_KEY, "RS256", "r")
        with pytest.raises(Unauthenticated):  # it was fetched just now
            tokens.identify(token, {"shop": SHOP}.get)
        served.append(jwk(RSA_KEY, "r"))
        pauses.put_nowait(None)
        await pausing(now=False)
        fetched.clear()
        with pytest.raises(Unavailable):
            tokens.identify(token, {"shop": SHOP}.get)
        await pausing(now=True)
        assert fetched.is_set()
        assert tokens.identify(token, {"shop": SHOP}.get).client == "mia"
        kept.cancel()

    asyncio.run(story())


def test_source_that_fails_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        settings = SignedTokenSettings(jwt_keys="http://127.0.0.1:1/jwks")
        keys = SignedTokens(settings, HandClock(NOW_S * 1_000_000)).keys
        answers: list[bytes | OSError] = [json.dumps({"keys": [jwk(RSA_KEY, "r")]}).encode()]
        answers += [OSError("refused"), b"no json", b"{}", b"x" * (1 << 19)]

        def fetch() -> bytes:
            answer = answers.pop(0)
            if isinstance(answer, OSError):
                raise answer
            return answer

        monkeypatch.setattr(keys, "_fetch", fetch)
        while answers:
            await keys.refresh()
            assert len(keys.find("RS256", "r")) == 1

    asyncio.run(story())
