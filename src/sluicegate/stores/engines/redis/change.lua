-- Change: what a write and a swap have in common. KEYS: the bucket's partitions, the partition's sort
-- keys, its values. ARGV begins with the partition.
local call = redis.call
local parts, sorts, values = KEYS[1], KEYS[2], KEYS[3]

local function change(sort, is_there, value)
  if is_there == '1' then
    call('ZADD', sorts, 0, sort)
    call('HSET', values, sort, value)
  else
    call('ZREM', sorts, sort)
    call('HDEL', values, sort)
  end
end

local function list_partition()
  if call('EXISTS', sorts) == 1 then
    call('ZADD', parts, 0, ARGV[1])
  else
    call('ZREM', parts, ARGV[1])
  end
end
