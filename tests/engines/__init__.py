"""Real servers for tests: Kafka, Cassandra and S3Proxy as plain child processes on loopback.

Here lives what brings a server, starts it, proves that it answers and ends it. Nothing here imports
`sluicegate`, and nothing stands in for a server: a test that needs one gets a real one or is
skipped.
"""
