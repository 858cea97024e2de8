-- Instant: the one state of every paced limit, when it will be as good as new. As text it is whole
-- microseconds, and behind a + a part of the next one: 1700000000000000+04/6 is 4/6 more. What is
-- divided by is the limit's count, so the text says how many a period (that stands in the key) the
-- debt was made of, and a limit that has changed can count the same units at its own pace.
--
-- The part has a 0 in front, to tell it from what an earlier version wrote: the fraction reduced, or
-- none. That has no pace and is taken as it is; and that version reads these texts to the microsecond.
local function paced_limit(per, tolerance, part, count)
  per, tolerance, count = tonumber(per), tonumber(tolerance), tonumber(count)
  return {
    per = per,
    count = count,
    share = count / per, -- so many parts are a tick
    tolerance = tolerance,
    bar = now + tolerance,
    bar_part = tonumber(part),
    tail = format('+0/%.0f', count),
  }
end

local function beyond(us, part, bar, bar_part)
  return us > bar or (us == bar and part > bar_part)
end

local function write_instant(key, us, part, l)
  local text = l.tail
  if part > 0 then
    text = format('+0%.0f/%.0f', part * l.share, l.count)
  end
  -- It is kept until it says no more than nothing would.
  call('SET', key, format('%.0f', us) .. text, 'PX', format('%.0f', (us - now) / 1000 + spare_ms))
end

-- The instant at which as many units are paid off at this limit's pace, rounded up to a tick. Units
-- beyond its burst go on at the pace they were taken at, or a lowered limit would last for periods;
-- they stay as they are written, for whoever still has the other limit.
local function at_pace(key, us, part, of, l)
  local owed, burst = (us - now) * of + part, l.tolerance * l.count + l.bar_part * l.share
  if owed <= 0 then
    return 0, 0
  elseif owed > burst then
    return l.bar + math.ceil((owed - burst) / of), l.bar_part
  end
  local rest = fmod(owed, l.count)
  us, part = now + (owed - rest) / l.count, math.ceil(rest / l.share)
  if part == l.per then
    us, part = us + 1, 0
  end
  write_instant(key, us, part, l)
  return us, part
end

local function read_instant(key, text, l)
  local us = whole(text)
  if us then
    return us, 0
  end
  if not text then
    return 0, 0
  end
  local parts, part, of = string.match(text, '^(%d+)%+(%d+)/(%d+)$')
  local paced = part and string.sub(part, 1, 1) == '0'
  us, part, of = whole(parts), whole(part), whole(of)
  if not (us and part and of and part < of) then
    return 0, 0
  end
  if paced and of ~= l.count then
    return at_pace(key, us, part, of, l)
  elseif paced then
    part = part / l.share
  end
  if part % 1 ~= 0 or (of ~= l.per and not paced) then
    return us + 1, 0 -- a part of something else: rounded up, so that nothing is given away
  end
  return us, part
end
