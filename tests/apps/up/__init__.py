"""Tests of `sluicegate up`, a file for each of its files, and `test_process.py` for the whole."""
