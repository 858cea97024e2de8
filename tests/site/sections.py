"""Sections: where each page stands in the navigation. A page that none names is an error."""

from __future__ import annotations

from fnmatch import fnmatch
from typing import Final

_GUIDES: Final = "docs/guides/"
# Patterns in order; a page belongs to the first that fits it.
SECTIONS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    (
        "Start here",
        (
            "README.md", f"{_GUIDES}up.md", f"{_GUIDES}how-to.md", "examples/README.md",
            "docs/proof.md", "docs/glossary.md",
        ),
    ),
    (
        "In a program",
        tuple(
            f"{_GUIDES}{name}.md"
            for name in (
                "limits", "permits", "web", "rules", "redis", "service-store", "failures",
                "break-glass", "telemetry", "testing", "from-*",
            )
        ),
    ),
    ("For a mesh, a gateway", (f"{_GUIDES}limiter*.md", f"{_GUIDES}client.md")),
    (
        "In front of a store",
        (f"{_GUIDES}kv.md", f"{_GUIDES}kv-*.md", f"{_GUIDES}policies-store.md"),
    ),
    (
        "Around a service",
        (
            f"{_GUIDES}resilience*.md", f"{_GUIDES}faults.md", f"{_GUIDES}objectives.md",
            f"{_GUIDES}policies-*.md",
        ),
    ),
    ("Between services", (f"{_GUIDES}pubsub*.md", "clients/*/README.md")),
    ("Images", (f"{_GUIDES}images*.md",)),
    (
        "See it, change it, undo it",
        (
            f"{_GUIDES}console.md", f"{_GUIDES}rulebook*.md", f"{_GUIDES}shadow.md",
            f"{_GUIDES}capture.md", f"{_GUIDES}what-if.md", f"{_GUIDES}quota-tune.md",
            f"{_GUIDES}lab*.md", f"{_GUIDES}hunt.md", f"{_GUIDES}zoo.md",
        ),
    ),
    (
        "Operations",
        (
            "docs/operations/*.md", "SECURITY.md", f"{_GUIDES}dead-letters.md",
            f"{_GUIDES}blobs.md", "deploy/README.md",
        ),
    ),
    ("Concepts", ("docs/concepts/*.md",)),
    ("Decisions", ("docs/decisions/*.md",)),
    (
        "The project",
        ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", f"{_GUIDES}engines.md"),
    ),
)  # fmt: skip


def order(paths: list[str]) -> tuple[list[tuple[str, list[str]]], list[str]]:
    """Return the pages of each section in its order, and those that have none."""
    left = sorted(paths)
    sections: list[tuple[str, list[str]]] = []
    for title, patterns in SECTIONS:
        found: list[str] = []
        for pattern in patterns:
            fitting = [path for path in left if fnmatch(path, pattern)]
            found += fitting
            left = [path for path in left if path not in fitting]
        sections.append((title, found))
    return sections, left
