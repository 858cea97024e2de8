-- Instant: the one state of every paced limit, when it will be as good as new. As text it is whole
-- microseconds, and behind a + the part of the next one that a rate needs: 1700000000000000+2/3.
local function read_instant(text, per_us)
  local us = whole(text)
  if us then
    return us, 0
  end
  if not text then
    return 0, 0
  end
  local parts, part, of = string.match(text, '^(%d+)%+(%d+)/(%d+)$')
  us, part, of = whole(parts), whole(part), whole(of)
  if not (us and part and of and part < of) then
    return 0, 0
  end
  if of ~= per_us then
    return us + 1, 0 -- of another rate: rounded up, so that nothing is given away
  end
  return us, part
end

local function write_instant(key, us, part, per_us)
  local text = format('%.0f', us)
  if part > 0 then
    text = format('%.0f+%.0f/%.0f', us, part, per_us)
  end
  -- It is kept until it says no more than nothing would.
  call('SET', key, text, 'PX', format('%.0f', (us - now) / 1000 + spare_ms))
end
