"""Gives these tests a rulebook of their own."""

from __future__ import annotations

from tests.apps.rulebook.stories import book

__all__ = ["book"]
