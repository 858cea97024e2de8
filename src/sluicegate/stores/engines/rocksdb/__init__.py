"""rocksdb."""
