-- Swap: one change, if the value there is the expected one. KEYS as in a write. ARGV: the partition,
-- the sort key, whether one is expected and which, whether one is to be there and which.
local call = redis.call
local parts, sorts, values = KEYS[1], KEYS[2], KEYS[3]
local part, sort = ARGV[1], ARGV[2]
local found = call('HGET', values, sort)
if ARGV[3] == '1' then
  if found ~= ARGV[4] then return 0 end
elseif found then
  return 0
end
if ARGV[5] == '1' then
  call('ZADD', sorts, 0, sort)
  call('HSET', values, sort, ARGV[6])
  call('ZADD', parts, 0, part)
elseif found then
  call('ZREM', sorts, sort)
  call('HDEL', values, sort)
  if call('EXISTS', sorts) == 0 then call('ZREM', parts, part) end
end
return 1
