-- Glass: put a new page where the old one still is, and its lines into the audit; all or nothing.
-- KEYS: the page, the audit. ARGV: the old page (empty: none), the new one (empty: none), its life
-- in ms, the bytes of a page at most, lines kept at most, 1 to replace whatever is there, lines.
if ARGV[6] ~= '1' then
  -- One byte more than a page may have, so that a longer value is not taken for its beginning.
  local there = redis.pcall('GETRANGE', KEYS[1], 0, tonumber(ARGV[4]))
  if there ~= ARGV[1] then
    return 0
  end
end
-- The audit first: if it cannot be written, nothing is opened.
for i = 7, #ARGV do
  redis.call('RPUSH', KEYS[2], ARGV[i])
end
redis.call('LTRIM', KEYS[2], -tonumber(ARGV[5]), -1)
if ARGV[2] == '' then
  redis.call('DEL', KEYS[1])
else
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
end
return 1
