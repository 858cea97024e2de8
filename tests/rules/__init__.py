"""Tests of the rulebook, a file for each of its files."""
