-- Release: give places back. ARGV: now, id, count. Reply: 1 if they were held until now. What had
-- expired is removed all the same; by its own name, so it frees nobody else's place.
local held = alive(ARGV[2])
each(ARGV[2], tonumber(ARGV[3]), 'ZREM')
return held and 1 or 0
