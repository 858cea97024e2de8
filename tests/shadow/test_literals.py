"""Literals: what rules name is read back from a capture, and nothing else is."""

from __future__ import annotations

import pytest

from sluicegate.rules.problems import BadRules
from sluicegate.shadow.capture.key import CaptureKey
from sluicegate.shadow.literals import vocabulary_of
from sluicegate.shadow.redaction import Vocabulary

KEY = CaptureKey(b"k" * 32)
NATIVE = b"""\
version: 1
callers:
  names: {gateway: CRITICAL}
  quotas: {reports: {limit: 5, window: 1h}}
  penalties: {crawler: 3}
  pins: [vip]
priorities:
  header: X-Kind
  names: {checkout: CRITICAL, "batch-*": BULK}
rules:
  - {rule_id: api, resource_path: "/api/v1/{id}/*", client_type: tv, limit: 5, window: 1h}
"""
MESH = b"""\
domain: edge
descriptors:
  - key: status
    value: 404
    rate_limit: {unit: hour, requests_per_unit: 5}
    descriptors:
      - {key: agent, value: "curl/*"}
      - {key: 7, value: "a*"}
"""


def is_known(vocabulary: Vocabulary, text: str) -> bool:
    return vocabulary.literal(KEY.token(text)) == text


def test_whatever_a_native_rule_names_is_read_back() -> None:
    vocabulary = vocabulary_of([{"a.yaml": NATIVE}], KEY)
    for text in ("gateway", "reports", "crawler", "vip", "checkout", "api", "v1", "tv"):
        assert is_known(vocabulary, text), text
    assert not is_known(vocabulary, "ann")
    assert vocabulary.globs == (("x-kind", "batch-*"),)


def test_a_number_is_the_text_that_a_mesh_would_send() -> None:
    vocabulary = vocabulary_of([{"mesh.yaml": MESH}], KEY)
    assert is_known(vocabulary, "404")
    assert vocabulary.globs == (("7", "a*"), ("agent", "curl/*"))


def test_both_books_are_read_and_other_files_are_not() -> None:
    books = [{"a.yaml": NATIVE, "README.md": b"not: [rules"}, {"mesh.yaml": MESH}]
    vocabulary = vocabulary_of(books, KEY, names=["from a setting"])
    assert is_known(vocabulary, "vip")
    assert is_known(vocabulary, "404")
    assert is_known(vocabulary, "from a setting")


def test_a_file_that_is_no_rules_file_says_so() -> None:
    with pytest.raises(BadRules, match=r"bad\.yaml"):
        vocabulary_of([{"bad.yaml": b"version: 1\nrules: [\n"}], KEY)


def test_without_a_key_nothing_was_redacted_and_nothing_is_to_be_read_back() -> None:
    assert len(vocabulary_of([{"a.yaml": NATIVE}], None)) == 0
