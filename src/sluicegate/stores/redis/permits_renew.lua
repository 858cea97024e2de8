-- Renew: hold places for the whole time from now, unless they are free already. ARGV: now, id, count,
-- how long in us. Reply: 1 if they are held.
if not alive(ARGV[2]) then
  return 0
end
each(ARGV[2], tonumber(ARGV[3]), 'ZADD', format('%.0f', now + tonumber(ARGV[4])))
keep_set()
return 1
