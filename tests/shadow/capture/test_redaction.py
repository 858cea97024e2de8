from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as settings_of

from sluicegate.contracts.checks import CheckRequest, Descriptor, MeshRequest
from sluicegate.contracts.errors import BadValue
from sluicegate.shadow.capture.key import CaptureKey
from sluicegate.shadow.capture.reader import read_capture
from sluicegate.shadow.redaction import Redaction, Vocabulary, check_names
from sluicegate.shadow.secret_names import is_secret
from tests.shadow.capture.world import (
    KEY,
    REQUESTS,
    Request,
    settings,
    unpacked,
    values_of,
    written,
)


@settings_of(max_examples=50)
@given(REQUESTS)
def test_no_value_stands_in_a_file_in_any_form(requests: list[Request]) -> None:
    with tempfile.TemporaryDirectory() as name:
        written(Path(name), requests)
        data = unpacked(Path(name))
    for value in values_of([query for _, _, query in requests]):
        assert value.encode() not in data


def test_only_what_the_allow_list_names_stays_as_it_is(tmp_path: Path) -> None:
    queries: list[CheckRequest | MeshRequest] = [
        CheckRequest("user-ann", "/playback/user-ann", headers={"x-client-type": "television"}),
        MeshRequest("the-shop", [Descriptor([("tenant", "acme-corp"), ("country", "freedonia")])]),
    ]
    requests: list[Request] = [(n, 0, query) for n, query in enumerate(queries)]
    names = ("country", "x-client-type")
    written(tmp_path, requests, plain_values=("playback",), plain_names=names)
    data = unpacked(tmp_path)
    for stays in ("playback", "television", "freedonia", "the-shop", "tenant", "x-client-type"):
        assert stays.encode() in data
    for hidden in ("ann", "acme"):
        assert hidden.encode() not in data


def test_a_plain_value_is_known_without_a_vocabulary(tmp_path: Path) -> None:
    written(tmp_path, [(1, 0, CheckRequest("ann", "/api/v1"))], plain_values=("api",))
    (query,) = read_capture(tmp_path, key=KEY).traffic.queries
    assert isinstance(query, CheckRequest)
    assert query.resource_path.startswith("/api/~")


@pytest.mark.parametrize(
    "name",
    [
        "authorization", "Proxy-Authorization", "cookie", "set-cookie", "x-api-key", "x_api_key",
        "apikey", "x-auth", "x-auth-token", "www-authenticate", "x-session-id", "x-csrf",
        "x-amz-security-token", "client_secret", "x-goog-signature", "x-jwt-assertion", "password",
        "private-key", "otp", "sid",
    ],
)  # fmt: skip
def test_names_of_secrets_are_known(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize(
    "name",
    ["author", ":authority", "x-client-type", "x-netflix.request-name", "tenant", "path", "pinned",
     "remote_address", "keyword", "inside"],
)  # fmt: skip
def test_other_names_are_not_taken_for_secrets(name: str) -> None:
    assert not is_secret(name)


def test_secrets_are_not_kept_even_as_tokens(tmp_path: Path) -> None:
    secret = "hunter2-hunter2"
    queries: list[CheckRequest | MeshRequest] = [
        CheckRequest("ann", "/a", headers={"authorization": secret, "x-client-type": "tv"}),
        MeshRequest(
            "d", [Descriptor([("tenant", "t"), ("api_key", secret)]), Descriptor([("a", "b")])]
        ),
    ]
    written(tmp_path, [(n, 0, query) for n, query in enumerate(queries)])
    data = unpacked(tmp_path)
    assert secret.encode() not in data
    assert KEY.token(secret) not in data
    _, mesh = read_capture(tmp_path, vocabulary=Vocabulary(["b"], key=KEY)).traffic.queries
    assert isinstance(mesh, MeshRequest)
    assert [list(one.entries) for one in mesh.descriptors] == [[("a", "b")]]


def test_a_secret_cannot_be_allowed(tmp_path: Path) -> None:
    with pytest.raises(BadValue, match="never kept"):
        settings(tmp_path, headers=("authorization",))
    with pytest.raises(BadValue, match="never kept"):
        settings(tmp_path, mesh_keys=("api_key",))
    with pytest.raises(BadValue, match="never kept"):
        Redaction(KEY, plain_names=["cookie"])
    with pytest.raises(BadValue, match="lower case"):
        check_names("headers", ["X-Kind"])


def test_each_key_has_tokens_of_its_own() -> None:
    other = CaptureKey(b"o" * 32)
    assert KEY.token("ann") != other.token("ann")
    assert KEY.fingerprint != other.fingerprint
    assert len(KEY.token("ann")) == 8
    # Who sees who was drawn has seen no token.
    assert KEY.place("ann") != int.from_bytes(KEY.token("ann"), "big")
    assert bytes.fromhex(KEY.fingerprint) != KEY.token("")


def test_a_capture_is_read_with_its_own_key_only(tmp_path: Path) -> None:
    written(tmp_path, [(1, 0, CheckRequest("ann", "/a"))])
    with pytest.raises(BadValue, match="give the key"):
        read_capture(tmp_path)
    with pytest.raises(BadValue, match="another key"):
        read_capture(tmp_path, key=CaptureKey(b"o" * 32))
    with pytest.raises(BadValue, match="capture's key"):
        read_capture(tmp_path, key=KEY, vocabulary=Vocabulary(["a"], key=CaptureKey(b"o" * 32)))
