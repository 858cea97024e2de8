"""kv: the dispatcher. Stateless processes in front of a storage engine that decide, for every read
and write of many tenants, whether it may enter now, later, or not at all."""
