"""The RocksDB engine: embedded, used by one process at a time, for tables that are mostly
written.
"""
