"""The tests: the tree of `src/headgate` over again, a test file for each file that decides."""
