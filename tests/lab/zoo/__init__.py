"""Tests of the zoo."""
