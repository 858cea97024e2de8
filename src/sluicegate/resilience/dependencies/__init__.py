"""Dependency isolation: one that hangs fills its own places, and a soft one may be done without."""
