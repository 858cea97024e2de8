"""What the commands of services share."""

from __future__ import annotations

import base64

import pytest

from sluicegate.service.command import TOKEN_BYTES, new_token


def test_a_token_is_never_taken_for_a_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    """One in 64 began with a dash, and `--token` then had no argument."""
    dash, letter = b"\xf8" + bytes(TOKEN_BYTES - 1), bytes(TOKEN_BYTES)
    assert base64.urlsafe_b64encode(dash).startswith(b"-")
    draws = iter([dash, dash, letter])
    monkeypatch.setattr("sluicegate.service.command.os.urandom", lambda _: next(draws))
    assert new_token() == "A" * 43
