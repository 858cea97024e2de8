"""Errors of drivers: what an exception of a library means to a client. No driver is imported."""
