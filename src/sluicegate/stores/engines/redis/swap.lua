-- Swap: changes of one partition, if every value there is the expected one. KEYS as in a write. ARGV:
-- the partition, then sixes: the sort key, whether one is expected and which, whether it changes,
-- whether one is to be there and which.
local call = redis.call
local parts, sorts, values = KEYS[1], KEYS[2], KEYS[3]
for i = 2, #ARGV, 6 do
  local found = call('HGET', values, ARGV[i])
  if ARGV[i + 1] == '1' then
    if found ~= ARGV[i + 2] then return 0 end
  elseif found then
    return 0
  end
end
for i = 2, #ARGV, 6 do
  local sort = ARGV[i]
  if ARGV[i + 3] == '1' then
    if ARGV[i + 4] == '1' then
      call('ZADD', sorts, 0, sort)
      call('HSET', values, sort, ARGV[i + 5])
    else
      call('ZREM', sorts, sort)
      call('HDEL', values, sort)
    end
  end
end
if call('EXISTS', sorts) == 1 then
  call('ZADD', parts, 0, ARGV[1])
else
  call('ZREM', parts, ARGV[1])
end
return 1
