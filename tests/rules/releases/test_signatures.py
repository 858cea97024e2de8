from __future__ import annotations

import base64
import json
import os
import pickle
import re
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.rules.releases.signatures import (
    ENVELOPE_BYTES_MAX,
    RELEASE,
    ROLLOUT,
    Signer,
    Untrusted,
    Verifier,
    new_key,
)
from tests.rules.releases.press import SIGNER, new_signer

TRUSTED = SIGNER.verifier()


def envelope(**changed: object) -> bytes:
    fields = json.loads(SIGNER.sign(RELEASE, b'{"a":1}'))
    return json.dumps({**fields, **changed}).encode()


def test_what_was_signed_is_opened_to_the_byte() -> None:
    body = '{"b": "ü \\u0000 \U0001f600"}\n'.encode()
    assert TRUSTED.open(RELEASE, SIGNER.sign(RELEASE, body)) == body
    assert TRUSTED.open(RELEASE, SIGNER.sign(RELEASE, b"")) == b""


def test_the_signature_is_plain_ed25519_over_the_kind_the_format_and_the_body(
    tmp_path: Path,
) -> None:
    # Anybody with the public key can check it without this program, and formats are kept.
    key = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    fields = json.loads(Signer(key).sign(ROLLOUT, b"{}"))
    signed = b"sluicegate signed document\0orders\x001\0{}"
    key.public_key().verify(base64.b64decode(fields["signature"]), signed)
    assert fields["key"] == "56475aa75463474c"
    assert (fields["format"], fields["kind"], fields["body"]) == (1, "orders", "{}")


def test_orders_can_never_pass_for_an_edition() -> None:
    rollout = SIGNER.sign(ROLLOUT, b"{}")
    with pytest.raises(Untrusted, match="'orders'"):
        TRUSTED.open(RELEASE, rollout)
    relabelled = json.dumps({**json.loads(rollout), "kind": RELEASE}).encode()
    with pytest.raises(Untrusted, match="has not signed this"):
        TRUSTED.open(RELEASE, relabelled)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"body": '{"a":2}'}, "has not signed"),
        ({"body": None}, "has not signed"),
        ({"body": "\ud800"}, "damaged"),
        ({"signature": ""}, "not whole"),
        ({"signature": "!!!!"}, "damaged"),
        ({"signature": 5}, "not whole"),
        ({"signature": base64.b64encode(bytes(64)).decode()}, "has not signed"),
        ({"key": "0000000000000000"}, "'0000000000000000' is not trusted here"),
        ({"key": None}, "is not trusted here"),
        ({"kind": "other"}, "'other'"),
        ({"kind": None}, "'None'"),
    ],
)
def test_a_changed_envelope_is_refused(changed: dict[str, object], why: str) -> None:
    with pytest.raises(Untrusted, match=why):
        TRUSTED.open(RELEASE, envelope(**changed))


@given(data=st.data())
def test_no_byte_of_the_body_or_of_the_signature_can_be_changed(data: st.DataObject) -> None:
    whole = SIGNER.sign(RELEASE, b'{"limit": 100}')
    at = data.draw(st.integers(0, len(whole) - 1))
    other = data.draw(st.integers(0, 255).filter(lambda byte: byte != whole[at]))
    changed = whole[:at] + bytes([other]) + whole[at + 1 :]
    with pytest.raises((Untrusted, BadValue)):
        TRUSTED.open(RELEASE, changed)


def test_a_signature_is_written_in_one_way() -> None:
    """Of its last character only two bits are the signature's; the others change nothing."""
    whole = SIGNER.sign(RELEASE, b"{}").decode()
    changed = 0
    for last in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/":
        other = re.sub('.=="', f'{last}=="', whole)
        if other != whole:
            changed += 1
            with pytest.raises(Untrusted):
                TRUSTED.open(RELEASE, other.encode())
    assert changed == 63


@given(st.integers(0, 200))
def test_a_truncated_envelope_is_refused(length: int) -> None:
    whole = SIGNER.sign(RELEASE, b'{"a":1}')
    with pytest.raises(Untrusted):
        TRUSTED.open(RELEASE, whole[: min(length, len(whole) - 1)])


def test_what_is_no_envelope_is_refused() -> None:
    for data in (b"", b"[]", b"{", b'"x"', b'{"format":1,"format":1}', b"\xff\xfe", b"[" * 100_000):
        with pytest.raises(Untrusted):
            TRUSTED.open(RELEASE, data)
    with pytest.raises(Untrusted, match="bytes"):
        TRUSTED.open(RELEASE, b" " * (ENVELOPE_BYTES_MAX + 1))
    with pytest.raises(Untrusted, match="damaged"):
        TRUSTED.open(RELEASE, envelope().decode().encode("utf-16"))


def test_a_newer_format_is_refused_with_what_to_do_and_new_fields_are_not() -> None:
    with pytest.raises(BadValue, match="upgrade"):
        TRUSTED.open(RELEASE, envelope(format=2))
    assert TRUSTED.open(RELEASE, envelope(invented_later=[1])) == b'{"a":1}'


def test_a_stranger_s_signature_is_refused_and_both_keys_are_trusted_while_they_change() -> None:
    old, new = SIGNER, new_signer()
    with pytest.raises(Untrusted, match=f"{new.id}.*{old.id}"):
        TRUSTED.open(RELEASE, new.sign(RELEASE, b"{}"))
    both = Verifier([old.public_pem(), new.public_pem()])
    assert both.ids == (old.id, new.id)
    assert both.open(RELEASE, new.sign(RELEASE, b"{}")) == b"{}"
    assert both.open(RELEASE, old.sign(RELEASE, b"{}")) == b"{}"


def test_what_is_too_large_or_no_text_is_not_signed() -> None:
    with pytest.raises(BadValue, match="at most"):
        SIGNER.sign(RELEASE, b"x" * ENVELOPE_BYTES_MAX)
    with pytest.raises(BadValue, match="UTF-8"):
        SIGNER.sign(RELEASE, b"\xff")


# Keys in files.


def test_a_new_key_is_for_its_owner_alone_and_is_never_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "keys"
    made = new_key(folder)
    assert made.private.stat().st_mode & 0o777 == 0o600
    assert made.public.stat().st_mode & 0o777 == 0o644
    assert folder.stat().st_mode & 0o777 == 0o700
    signer = Signer.read(made.private)
    assert signer.id == made.id
    assert Verifier.read([made.public]).open(RELEASE, signer.sign(RELEASE, b"{}")) == b"{}"
    before = made.private.read_bytes()
    with pytest.raises(BadValue, match="there already"):
        new_key(folder)
    made.public.unlink()
    with pytest.raises(BadValue, match="there already"):
        new_key(folder)
    assert made.private.read_bytes() == before


def test_a_key_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Unavailable, match="key folder"):
        new_key(tmp_path / "file" / "keys")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o610, 0o644])
def test_a_private_key_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    made = new_key(tmp_path)
    made.private.chmod(mode)
    with pytest.raises(BadValue, match=f"mode {mode:04o}.*chmod 600"):
        Signer.read(made.private)
    made.private.chmod(0o400)
    Signer.read(made.private)


def test_what_is_no_signing_key_is_refused_and_never_shown(tmp_path: Path) -> None:
    made = new_key(tmp_path)
    secret = made.private.read_bytes()
    path = tmp_path / "other.pem"

    def refused(data: bytes, why: str) -> None:
        path.write_bytes(data)
        path.chmod(0o600)
        with pytest.raises(BadValue, match=why) as caught:
            Signer.read(path)
        assert data.splitlines()[1].decode() not in f"{caught.value!r} {caught.value.value!r}"

    key = load_pem_private_key(secret, None)
    locked = key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
    )
    rsa = generate_private_key(65_537, 2_048)
    other = rsa.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    refused(locked, "encrypted")
    refused(other, "no Ed25519")
    refused(made.public.read_bytes(), "no private key")
    refused(b"-----BEGIN\nx\n", "no private key")
    with pytest.raises(Unavailable, match="No such file"):
        Signer.read(tmp_path / "nowhere.pem")
    os.mkfifo(tmp_path / "pipe.pem", 0o600)
    with pytest.raises(BadValue, match="plain file"):
        Signer.read(tmp_path / "pipe.pem")


def test_a_signer_shows_its_id_and_nothing_else(tmp_path: Path) -> None:
    made = new_key(tmp_path)
    signer = Signer.read(made.private)
    assert repr(signer) == f"<Signer {made.id}>"
    assert repr(signer.verifier()) == f"<Verifier {made.id}>"
    with pytest.raises(TypeError):
        pickle.dumps(signer)


def test_trusted_keys_are_read_from_files_and_folders(tmp_path: Path) -> None:
    one, two = new_key(tmp_path / "one"), new_key(tmp_path / "two")
    trusted = tmp_path / "trusted"
    trusted.mkdir()
    for made in (one, two):
        (trusted / f"{made.id}.pem").write_bytes(made.public.read_bytes())
    (trusted / "notes.txt").write_text("not a key")
    assert set(Verifier.read([trusted]).ids) == {one.id, two.id}
    assert Verifier.read([one.public, two.public]).ids == (one.id, two.id)
    with pytest.raises(BadValue, match="this is a private key"):
        Verifier.read([tmp_path / "one"])
    (trusted / "bad.pem").write_text("nothing")
    with pytest.raises(BadValue, match=r"bad\.pem.*no public key"):
        Verifier.read([trusted])
    with pytest.raises(BadValue, match="from 1 to 16"):
        Verifier.read([])
    with pytest.raises(BadValue, match="from 1 to 16"):
        Verifier([one.public.read_bytes()] * 17)
    rsa = generate_private_key(65_537, 2_048).public_key()
    with pytest.raises(BadValue, match="no Ed25519"):
        Verifier([rsa.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)])


def test_an_untrusted_thing_goes_through_a_pickle() -> None:
    copy = pickle.loads(pickle.dumps(Untrusted("the rollout", "nobody signed them")))
    assert (copy.what, copy.detail) == ("the rollout", "nobody signed them")
