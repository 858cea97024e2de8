"""The Cassandra engine: tables as partitions of one keyspace, conditional writes by its
lightweight transactions.
"""
