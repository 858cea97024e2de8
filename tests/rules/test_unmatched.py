"""Unmatched requests: counted, and logged once a shape, within bounds."""

from __future__ import annotations

import pytest

from sluicegate.rules.unmatched import SHAPE_CHARS_MAX, SHAPES_MAX, UnmatchedRequests


def test_unmatched_check_is_logged_once_per_first_segment(
    caplog: pytest.LogCaptureFixture,
) -> None:
    unmatched = UnmatchedRequests()
    for path in ("/api/v1/a", "/api/v1/b", "/api/", "/other", "", "/"):
        unmatched.note_check(path, 3)
    assert unmatched.checks == 6
    assert caplog.messages == [
        f"no rule matches a check of resource_path {shape!r}: it is allowed and not counted"
        for shape in ("/api/", "/other", "", "/")
    ]


def test_unmatched_check_without_rules_for_paths_names_cause(
    caplog: pytest.LogCaptureFixture,
) -> None:
    UnmatchedRequests().note_check("/x", 0)
    assert "no rule for paths is active, only rules for descriptors" in caplog.text


def test_unmatched_mesh_request_is_logged_once_per_domain_and_keys(
    caplog: pytest.LogCaptureFixture,
) -> None:
    unmatched = UnmatchedRequests()
    for user in ("ann", "bob"):
        unmatched.note_mesh("edgy", [("user", user)])
    unmatched.note_mesh("edge", [("path", "/"), ("user", "ann")])
    assert unmatched.mesh == 3
    assert [text.partition("keys ")[2].partition(": it")[0] for text in caplog.messages] == [
        "'edgy: user'",
        "'edge: path, user'",
    ]


def test_shapes_are_bounded_in_count_and_characters(caplog: pytest.LogCaptureFixture) -> None:
    unmatched = UnmatchedRequests()
    for number in range(3 * SHAPES_MAX):
        unmatched.note_check(f"/{number}" + "x" * 10_000, 1)
        unmatched.note_mesh(f"{number}" + "x" * 10_000, [("k" * 10_000, "v")] * 100)
    assert unmatched.checks + unmatched.mesh == 6 * SHAPES_MAX
    assert len(caplog.messages) == SHAPES_MAX
    assert caplog.messages[-1].endswith("further ones are not logged")
    assert max(map(len, unmatched._shapes)) <= SHAPE_CHARS_MAX
    assert max(map(len, caplog.messages)) <= SHAPE_CHARS_MAX + 200
