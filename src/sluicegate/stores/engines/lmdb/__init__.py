"""The LMDB engine, the default: ordered, crash-safe, read in this process, written by group
commit.
"""
