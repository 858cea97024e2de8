-- Take, many at once, for paced limits: each key alone, each ask decided by one comparison.
--   ARGV: now, keep, then for each limit and cost: the number of keys, how often each is asked for
--   (empty: once), ticks a microsecond, the tolerance in two parts, the limit's count, and the
--   charge in two parts.
--   KEYS: those of the first limit and cost, then those of the next; none twice within one.
--   Reply: now, and for each ask the instant before, in one number or (ticks > 1) two; the first is
--   -1 - itself where the ask is refused.
local keep = ARGV[2] == '1'
local out, last = { now }, 1

local function take_whole(first, got, times, l, charge)
  local bar, tail = l.bar, l.tail
  local ahead, moves = -#tail, keep and charge > 0
  for i = 1, #got do
    local text, stored = got[i], 0
    if text then
      stored = string.sub(text, ahead) == tail and tonumber(string.sub(text, 1, ahead - 1))
      if not (stored and stored > 0 and stored < EXACT and stored % 1 == 0) then
        stored = read_instant(KEYS[first + i - 1], text, l)
      end
    end
    local at = stored
    for _ = 1, times and times[i] or 1 do
      last = last + 1
      local after = (at > now and at or now) + charge
      if after > bar then
        out[last] = -1 - at
      else
        out[last] = at
        if moves then
          at = after
        end
      end
    end
    if at ~= stored then
      local ttl_ms = format('%.0f', (at - now) / 1000 + spare_ms)
      call('SET', KEYS[first + i - 1], format('%.0f', at) .. tail, 'PX', ttl_ms)
    end
  end
end

local function take_parts(first, got, times, l, charge, charge_part)
  local per = l.per
  local moves = keep and (charge > 0 or charge_part > 0)
  for i = 1, #got do
    local us, part = read_instant(KEYS[first + i - 1], got[i], l)
    local moved = false
    for _ = 1, times and times[i] or 1 do
      local after, after_part = now + charge, charge_part
      if us >= now then
        after, after_part = us + charge, part + charge_part
        if after_part >= per then
          after, after_part = after + 1, after_part - per
        end
      end
      local fits = not beyond(after, after_part, l.bar, l.bar_part)
      out[last + 1] = fits and us or -1 - us
      out[last + 2] = part
      last = last + 2
      if fits and moves then
        us, part, moved = after, after_part, true
      end
    end
    if moved then
      write_instant(KEYS[first + i - 1], us, part, l)
    end
  end
end

local at, first = 3, 1
while ARGV[at] do
  local n = tonumber(ARGV[at])
  local times
  if ARGV[at + 1] ~= '' then
    times = {}
    for count in string.gmatch(ARGV[at + 1], '%d+') do
      times[#times + 1] = tonumber(count)
    end
  end
  local got = call('MGET', unpack(KEYS, first, first + n - 1))
  local l = paced_limit(ARGV[at + 2], ARGV[at + 3], ARGV[at + 4], ARGV[at + 5])
  local charge, charge_part = tonumber(ARGV[at + 6]), tonumber(ARGV[at + 7])
  if l.per == 1 then
    take_whole(first, got, times, l, charge)
  else
    take_parts(first, got, times, l, charge, charge_part)
  end
  at, first = at + 8, first + n
end
return out
