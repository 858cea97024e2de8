-- Take, many at once, for paced limits: each key alone, each ask decided by one comparison.
--   ARGV: now, keep, then for each limit and cost: the number of keys, how often each is asked for
--   (empty: once), ticks a microsecond, and the tolerance and the charge in two parts each.
--   KEYS: those of the first limit and cost, then those of the next; none twice within one.
--   Reply: now, and for each ask the instant before, in one number or (ticks > 1) two; the first is
--   -1 - itself where the ask is refused.
local keep = ARGV[2] == '1'
local out, last = { now }, 1

local function take_whole(first, got, times, tolerance, charge)
  local bar = now + tolerance
  local moves = keep and charge > 0
  for i = 1, #got do
    local stored = tonumber(got[i]) or 0
    if got[i] and not (stored > 0 and stored < EXACT and stored % 1 == 0) then
      stored = read_instant(got[i], 1)
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
      call('SET', KEYS[first + i - 1], format('%.0f', at), 'PX', ttl_ms)
    end
  end
end

local function take_parts(first, got, times, per, tolerance, tolerance_part, charge, charge_part)
  local bar = now + tolerance
  local moves = keep and (charge > 0 or charge_part > 0)
  for i = 1, #got do
    local us, part = read_instant(got[i], per)
    local moved = false
    for _ = 1, times and times[i] or 1 do
      local after, after_part = now + charge, charge_part
      if us >= now then
        after, after_part = us + charge, part + charge_part
        if after_part >= per then
          after, after_part = after + 1, after_part - per
        end
      end
      local fits = after < bar or (after == bar and after_part <= tolerance_part)
      out[last + 1] = fits and us or -1 - us
      out[last + 2] = part
      last = last + 2
      if fits and moves then
        us, part, moved = after, after_part, true
      end
    end
    if moved then
      write_instant(KEYS[first + i - 1], us, part, per)
    end
  end
end

local at, first = 3, 1
while ARGV[at] do
  local n, per = tonumber(ARGV[at]), tonumber(ARGV[at + 2])
  local times
  if ARGV[at + 1] ~= '' then
    times = {}
    for count in string.gmatch(ARGV[at + 1], '%d+') do
      times[#times + 1] = tonumber(count)
    end
  end
  local got = call('MGET', unpack(KEYS, first, first + n - 1))
  local tolerance, charge = tonumber(ARGV[at + 3]), tonumber(ARGV[at + 5])
  if per == 1 then
    take_whole(first, got, times, tolerance, charge)
  else
    local tolerance_part, charge_part = tonumber(ARGV[at + 4]), tonumber(ARGV[at + 6])
    take_parts(first, got, times, per, tolerance, tolerance_part, charge, charge_part)
  end
  at, first = at + 7, first + n
end
return out
