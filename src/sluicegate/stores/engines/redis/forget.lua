-- Forget: partitions of one bucket. KEYS: the bucket's partitions, then of each its sort keys and its
-- values. ARGV: the partitions.
local call = redis.call
for i, part in ipairs(ARGV) do
  call('UNLINK', KEYS[2 * i], KEYS[2 * i + 1])
  call('ZREM', KEYS[1], part)
end
return 1
