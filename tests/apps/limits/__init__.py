"""Tests of `headgate limits`, and `test_process.py` for the whole."""
