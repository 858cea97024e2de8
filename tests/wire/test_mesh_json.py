"""Envoy's messages as JSON: what we read and write is what a kept library reads and writes."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.checks import MeshResponse, MeshStatus
from sluicegate.contracts.errors import BadValue
from sluicegate.wire.mesh_json import mesh_request_from_json, mesh_response_to_json
from sluicegate.wire.mesh_messages import MeshBounds
from tests.wire.mesh_oracle import (
    ANSWERS,
    RLS,
    answered_theirs,
    fields_of,
    requests,
    their_fields_of,
)


@given(requests(), st.booleans(), st.booleans())
def test_an_ask_says_what_their_request_says(theirs: Any, names: bool, numbers: bool) -> None:
    text = json_format.MessageToJson(
        theirs, preserving_proto_field_name=names, use_integers_for_enums=numbers
    )
    assert fields_of(mesh_request_from_json(text.encode())) == their_fields_of(theirs)


@given(ANSWERS)
def test_an_answer_says_what_their_response_says(answer: MeshResponse) -> None:
    ours = mesh_response_to_json(answer)
    theirs = answered_theirs(answer)
    assert json_format.Parse(ours, RLS.RateLimitResponse()) == theirs
    assert json.loads(ours) == json_format.MessageToDict(theirs)


WORDS = st.sampled_from(
    [
        "domain",
        "descriptors",
        "entries",
        "key",
        "value",
        "limit",
        "unit",
        "hitsAddend",
        "hits_addend",
        "requestsPerUnit",
        "MINUTE",
        "7",
        "-1",
        "1e3",
        "x",
    ]
)
THINGS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
)


@given(THINGS)
def test_what_we_read_they_read_the_same(thing: object) -> None:
    data = json.dumps(thing).encode()
    try:
        ours = fields_of(mesh_request_from_json(data))
    except BadValue:
        return
    assert ours == their_fields_of(json_format.Parse(data, RLS.RateLimitRequest()))


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused_and_never_another_error(data: bytes) -> None:
    try:
        mesh_request_from_json(data)
    except BadValue as error:
        assert error.remedy  # noqa: PT017 - most are refused, and not one is expected to be


def test_numbers_may_be_spelt_and_null_is_as_good_as_left_out() -> None:
    data = b"""{"domain": null, "hitsAddend": "3", "descriptors": [
        {"hitsAddend": "18446744073709551615", "limit": null, "entries": null},
        {"hits_addend": 0, "limit": {"requests_per_unit": 5.0, "unit": 2}}]}"""
    ask = mesh_request_from_json(data)
    assert fields_of(ask) == ("", 3, [([], 2**64 - 1, None), ([], 0, (5, 2))])
    assert fields_of(ask) == their_fields_of(json_format.Parse(data, RLS.RateLimitRequest()))


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("", "body"),
        ("{", "body"),
        ("[]", "body"),
        ("\ufeff{}", "body"),
        ('{"hitsAddend": NaN}', "body"),
        ('{"domain": "a", "domain": "b"}', "body"),
        ('{"domain": 1}', "domain"),
        ('{"domain": "\\ud800"}', "domain"),
        ('{"descriptors": {}}', "descriptors"),
        ('{"descriptors": [1]}', "descriptors[0]"),
        ('{"descriptors": [{}, {"entry": []}]}', "descriptors[1].entry"),
        ('{"descriptors": [{"entries": [{}, {"key": []}]}]}', "descriptors[0].entries[1].key"),
        ('{"descriptors": [{"limit": {"unit": "FORTNIGHT"}}]}', "descriptors[0].limit.unit"),
        ('{"descriptors": [{"limit": {"unit": "UNKNOWN"}}]}', "descriptors[0].limit.unit"),
        ('{"descriptors": [{"limit": {"unit": 2.5}}]}', "descriptors[0].limit.unit"),
        ('{"descriptors": [{"limit": {"unit": true}}]}', "descriptors[0].limit.unit"),
        ('{"descriptors": [{"hitsAddend": -1}]}', "descriptors[0].hits_addend"),
        ('{"hitsAddend": 4294967296}', "hits_addend"),
        ('{"hitsAddend": true}', "hits_addend"),
        ('{"hitsAddend": 1.5}', "hits_addend"),
        ('{"hitsAddend": "1.5"}', "hits_addend"),
        ('{"hitsAddend": 1, "hits_addend": 2}', "hits_addend"),
    ],
)
def test_what_is_malformed_is_refused_by_the_path_of_the_field(text: str, field: str) -> None:
    with pytest.raises(BadValue) as caught:
        mesh_request_from_json(text.encode())
    assert caught.value.field == field


def test_json_that_is_not_utf_8_or_nested_without_end_is_refused() -> None:
    for data in ("{}".encode("utf-16"), b'{"domain": "\xff"}', b"[" * 200_000):
        with pytest.raises(BadValue, match=r"^body: "):
            mesh_request_from_json(data)


def test_every_bound_is_reached_and_not_passed_and_named() -> None:
    bounds = MeshBounds(descriptors_max=1, entries_max=2, text_bytes_max=4)
    most = '{"domain": "fo\u00fcr", "descriptors": [{"entries": [{}, {"key": "four"}]}]}'
    with pytest.raises(BadValue, match=r"^domain: '5 bytes' .*text_bytes_max"):
        mesh_request_from_json(most.encode(), bounds)
    most = most.replace("\u00fc", "u")
    assert fields_of(mesh_request_from_json(most.encode(), bounds)) == (
        "four",
        0,
        [([("", ""), ("four", "")], -1, None)],
    )
    with pytest.raises(BadValue, match="descriptors_max"):
        mesh_request_from_json(b'{"descriptors": [{}, {}]}', bounds)
    with pytest.raises(BadValue, match=r"^descriptors\[0\].entries: .*entries_max"):
        mesh_request_from_json(b'{"descriptors": [{"entries": [{}, {}, {}]}]}', bounds)


@pytest.mark.parametrize(
    ("reset_us", "text"),
    [(0, "0s"), (3_000_000, "3s"), (1_005_000, "1.005s"), (1_000_001, "1.000001s")],
)
def test_a_duration_is_spelt_as_protobuf_has_it(reset_us: int, text: str) -> None:
    out = json.loads(
        mesh_response_to_json(MeshResponse(False, [MeshStatus(False, None, 0, reset_us)]))
    )
    assert out["statuses"][0]["durationUntilReset"] == text


def test_metadata_may_be_any_mapping_and_nothing_that_json_has_not() -> None:
    inner = MappingProxyType({"b": (1, None)})
    body = json.loads(
        mesh_response_to_json(MeshResponse(False, [], metadata=MappingProxyType({"a": inner})))
    )
    assert body["dynamicMetadata"] == {"a": {"b": [1, None]}}
    with pytest.raises(TypeError, match="JSON has no bytes"):
        mesh_response_to_json(MeshResponse(False, [], metadata={"a": b""}))


def test_text_that_utf_8_cannot_hold_still_makes_an_answer() -> None:
    answer = MeshResponse(True, [], response_headers=[("x", "\ud800")])
    assert json.loads(mesh_response_to_json(answer))["responseHeadersToAdd"] == [
        {"key": "x", "value": "?"}
    ]
