-- Write: changes of one partition, all in this one call. KEYS: the bucket's partitions, the
-- partition's sort keys, its values. ARGV: the partition, then threes: 1 or 0 for none, the sort
-- key, the value.
local call = redis.call
local parts, sorts, values = KEYS[1], KEYS[2], KEYS[3]
for i = 2, #ARGV, 3 do
  local sort = ARGV[i + 1]
  if ARGV[i] == '1' then
    call('ZADD', sorts, 0, sort)
    call('HSET', values, sort, ARGV[i + 2])
  else
    call('ZREM', sorts, sort)
    call('HDEL', values, sort)
  end
end
if call('EXISTS', sorts) == 1 then
  call('ZADD', parts, 0, ARGV[1])
else
  call('ZREM', parts, ARGV[1])
end
return 1
