-- Kinds: the ways to count, as tables with the same words, for the scripts that mix them.
--   open(s, l)                 read the state of s.key under the limit l, as it is now
--   judge(s, l, c, part, out)  whether a charge fits; adds to `out` what the asker needs to know
--   take(s, l, c, part)        charge what judge has just admitted, and write it down
--   settle(s, l, c, part, taken)  charge more, or give back if c < 0, as far as the limit can hold
-- `part` is the second half of a charge in time: ticks beyond the whole microseconds.

-- A key may hold what another kind of limit has left: then it holds nothing for this one.
local function text_at(key)
  local text = pcall('GET', key)
  return type(text) == 'string' and text or nil
end

local paced = {}

function paced.limit(a, b, c, d)
  local l = paced_limit(a, b, c, d)
  l.deepest, l.deepest_part = l.bar + l.tolerance, 2 * l.bar_part
  if l.deepest_part >= l.per then
    l.deepest, l.deepest_part = l.deepest + 1, l.deepest_part - l.per
  end
  return l
end

function paced.open(s, l)
  s.us, s.part = read_instant(s.key, text_at(s.key), l)
end

local function later(s, l, charge, part)
  local us, rest = now, part
  if s.us >= now then
    us, rest = s.us, s.part + part
    if rest >= l.per then
      us, rest = us + 1, rest - l.per
    end
  end
  return us + charge, rest
end

function paced.judge(s, l, charge, part, out)
  out[#out + 1] = s.us
  if l.per > 1 then
    out[#out + 1] = s.part
  end
  local us, rest = later(s, l, charge, part)
  return not beyond(us, rest, l.bar, l.bar_part)
end

function paced.take(s, l, charge, part)
  s.us, s.part = later(s, l, charge, part)
  write_instant(s.key, s.us, s.part, l)
end

-- What was taken has flowed back by itself one whole burst later: no more can be given back.
local function still_owed(l, charge, part, taken)
  if charge >= 0 or taken >= now then
    return charge, part
  end
  local most, rest = (taken - now) + (l.bar - now), l.bar_part
  if most < 0 then
    return 0, 0
  end
  if rest > 0 then
    most, rest = most + 1, l.per - rest
  end
  if charge < -most or (charge == -most and part < rest) then
    return -most, rest
  end
  return charge, part
end

function paced.settle(s, l, charge, part, taken)
  local us, rest = later(s, l, still_owed(l, charge, part, taken))
  if beyond(us, rest, l.deepest, l.deepest_part) then
    if beyond(s.us, s.part, l.deepest, l.deepest_part) then
      return -- deeper already, as after a clock went back: that is not forgiven
    end
    us, rest = l.deepest, l.deepest_part
  end
  if us < now or (us == now and rest == 0) then
    s.us, s.part = 0, 0
    call('DEL', s.key)
  elseif us ~= s.us or rest ~= s.part then
    s.us, s.part = us, rest
    write_instant(s.key, us, rest, l)
  end
end

local fixed = {}

function fixed.limit(a, b, c, d)
  local period = tonumber(b)
  return {
    limit = tonumber(a),
    period = period,
    window = (now - fmod(now, period)) / period,
    ttl_ms = c,
  }
end

function fixed.open(s, l)
  s.window, s.used = read_window(text_at(s.key), l.window)
end

function fixed.judge(s, l, cost, part, out)
  local n, used = #out, s.used < l.limit and s.used or l.limit
  out[n + 1], out[n + 2] = used, s.window
  return used + cost <= l.limit
end

function fixed.take(s, l, cost)
  s.used = s.used + cost
  write_window(s.key, s.window, s.used, l.ttl_ms)
end

function fixed.settle(s, l, cost, part, taken)
  local used = s.used + cost
  if cost > 0 and s.used >= l.limit then
    return
  end
  if cost < 0 and taken < now and (taken - fmod(taken, l.period)) / l.period ~= s.window then
    return -- what has passed no longer counts
  end
  used = used > 0 and used or 0
  if cost > 0 and used > l.limit then
    used = l.limit
  end
  if used ~= s.used then
    s.used = used
    write_window(s.key, s.window, used, l.ttl_ms)
  end
end

function cells.open(s, l)
  cells.read(s, l, text_at(s.key))
end

-- A list of entries, oldest first: the instant, what was taken then, and all that was ever taken up
-- to then. So what a window holds is the last total less what was before its first entry.
local log = {}

function log.limit(a, b, c, d)
  return { limit = tonumber(a), window = tonumber(b) }
end

local function entry(key, index)
  local text = pcall('LINDEX', key, index)
  if type(text) ~= 'string' then
    return nil
  end
  local at, cost, total = string.match(text, '^(%d+):(%d+):(%d+)$')
  at, cost, total = whole(at), whole(cost), whole(total)
  if at and cost and total then
    return { at = at, cost = cost, total = total }
  end
end

function log.open(s, l)
  local newest = entry(s.key, -1)
  s.newest, s.at, s.used, s.first, s.base = newest, now, 0, 0, 0
  if not newest then
    return
  end
  s.base = newest.total
  if newest.at > now then
    s.at = newest.at
  end
  -- A unit taken at t counts in [t, t + window): at its far edge it is gone.
  if newest.at > s.at - l.window then
    local oldest = entry(s.key, 0)
    while oldest and oldest.at <= s.at - l.window do
      s.first = s.first + 1
      oldest = entry(s.key, s.first)
    end
    if not oldest then
      s.newest, s.base = nil, 0 -- amid our entries there is one that is not ours
      return
    end
    s.base = oldest.total - oldest.cost
    s.used = newest.total - s.base
  else
    s.first = call('LLEN', s.key)
  end
end

-- The first entry, at its index, after whose end the window holds no more than `bar`.
local function falls_to(s, bar)
  local low, high = s.first, call('LLEN', s.key) - 1
  while low < high do
    local middle = (low + high - (low + high) % 2) / 2
    local one = entry(s.key, middle)
    if not one or s.used - (one.total - s.base) <= bar then
      high = middle
    else
      low = middle + 1
    end
  end
  local one = entry(s.key, low)
  return one and one.at or s.newest.at
end

function log.judge(s, l, cost, part, out)
  local fits = s.used + cost <= l.limit
  local remaining, retry, reset = l.limit - s.used, 0, 0
  if s.used > 0 then
    reset = s.newest.at + l.window - now
  end
  if fits then
    remaining = remaining - cost
    if cost > 0 then
      reset = s.at + l.window - now
    end
  elseif cost > l.limit then
    retry = -1
  else
    retry = falls_to(s, l.limit - cost) + l.window - now
  end
  local n = #out
  out[n + 1] = fits and 0 or -1
  out[n + 2] = remaining > 0 and remaining or 0
  out[n + 3] = retry
  out[n + 4] = reset
  return fits
end

local function write_entry(s, index)
  local newest = s.newest
  local text = format('%.0f:%.0f:%.0f', newest.at, newest.cost, newest.total)
  if index then
    call('LSET', s.key, index, text)
  else
    call('RPUSH', s.key, text)
  end
end

local function expire_log(s, l)
  local left = s.newest.at + l.window - now
  call('PEXPIRE', s.key, format('%.0f', left / 1000 + spare_ms))
end

function log.take(s, l, cost)
  if not s.newest then
    call('DEL', s.key)
  elseif s.first > 0 then
    call('LTRIM', s.key, s.first, -1)
  end
  local newest, total = s.newest, s.base + s.used + cost
  if s.used > 0 and newest.at == s.at then
    newest.cost, newest.total = newest.cost + cost, total
    write_entry(s, -1)
  else
    s.newest = { at = s.at, cost = cost, total = total }
    write_entry(s)
  end
  s.first, s.used = 0, s.used + cost
  expire_log(s, l)
end

-- Write the whole list anew, without what has no cost left.
local function rewrite(s, l, entries)
  call('DEL', s.key)
  local total = 0
  for i = 1, #entries do
    if entries[i].cost > 0 then
      total = total + entries[i].cost
      s.newest = entries[i]
      s.newest.total = total
      write_entry(s)
    end
  end
  if total > 0 then
    expire_log(s, l)
  end
  log.open(s, l)
end

function log.settle(s, l, cost, part, taken)
  if cost > 0 then
    local room = l.limit - s.used
    if room > 0 then
      log.take(s, l, cost < room and cost or room)
    end
    return
  end
  if s.first > 0 then
    call('LTRIM', s.key, s.first, -1)
    s.first = 0
  end
  if s.used == 0 then
    return
  end
  local left, lately, entries = -cost, taken >= now, {}
  local function give_back(one)
    local back = one.cost < left and one.cost or left
    one.cost, left = one.cost - back, left - back
  end
  for index = s.first, call('LLEN', s.key) - 1 do
    local one = entry(s.key, index)
    if not one then
      return
    end
    entries[#entries + 1] = one
  end
  if lately and s.used > 0 and s.newest.at == s.at then
    give_back(entries[#entries])
  end
  for i = 1, #entries do
    if lately or entries[i].at == taken then
      give_back(entries[i])
    end
  end
  if left < -cost then
    rewrite(s, l, entries)
  end
end

local kinds = { p = paced, f = fixed, c = cells, w = windows, l = log }

-- The limits of this call: their number, then for each its kind and four words; and what is next.
local function read_limits(at)
  local limits, n = {}, tonumber(ARGV[at])
  for i = 1, n do
    local kind = kinds[ARGV[at + 1]]
    local limit = kind.limit(ARGV[at + 2], ARGV[at + 3], ARGV[at + 4], ARGV[at + 5])
    limit.kind = kind
    limits[i] = limit
    at = at + 5
  end
  return limits, at + 1
end

-- A key's state, read once a call, or again if it is asked for under another limit.
local states = {}
local function state_of(key, limit)
  local s = states[key]
  if not s or s.limit ~= limit then
    s = { key = key, limit = limit }
    limit.kind.open(s, limit)
    states[key] = s
  end
  return s
end
