"""Tests of what Headgate gives its users for their own tests."""
