"""The tests: the tree of `src/sluicegate` over again, a test file for each file that decides."""
