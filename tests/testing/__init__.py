"""Tests of what Sluicegate gives its users for their own tests."""
