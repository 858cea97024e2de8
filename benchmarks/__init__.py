"""The benchmarks: one file a claim. Each prints a ratio against a named peer, measured in one run.

Run one from the root with `python -m benchmarks.decision` (as a file it does not find the others),
all with `make bench`. Absolute times depend on the
machine; the ratios are the claim. A file exits with 1 if its bar is not met.
"""
