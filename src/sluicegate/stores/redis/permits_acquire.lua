-- Acquire: hold places if there is room. ARGV: now, keep (or only look), limit, count, how long in
-- us, the permit's id, and pairs of id and count that are void: calls of before whose answers never
-- came. Reply: now, admitted, used, us until enough places expire, us until all have.
local keep, limit, count, span = ARGV[2] == '1', tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local expired
if keep then
  for i = 7, #ARGV, 2 do
    each(ARGV[i], tonumber(ARGV[i + 1]), 'ZREM')
  end
  call('ZREMRANGEBYSCORE', set, '-inf', format('%.0f', now))
  expired = 0
else
  expired = call('ZCOUNT', set, '-inf', format('%.0f', now))
end
local used = call('ZCARD', set) - expired
if used + count <= limit then
  if keep then
    each(ARGV[6], count, 'ZADD', format('%.0f', now + span))
    used = used + count
    keep_set()
  end
  return { now, 1, used, 0, latest() - now }
end
local retry = 0
if count <= limit then
  local rank = expired + used + count - limit - 1
  local enough = call('ZRANGE', set, rank, rank, 'WITHSCORES')
  retry = instant(enough[2]) - now
end
return { now, 0, used, retry, latest() - now }
