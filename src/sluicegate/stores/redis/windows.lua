-- Windows: a sliding window by two counters, each in a key of its own, which ends in the second in
-- which its window begins: rate_limit:{ann}:login:1700000040. What a script is given as the key is
-- all before that second. A count is plain digits, kept for two windows after it was last changed.
local windows = {}

function windows.limit(a, b, c, d)
  local window_us = tonumber(b)
  local start_us = now - fmod(now, window_us)
  return {
    limit = tonumber(a),
    window_us = window_us,
    window = start_us / window_us,
    ttl_ms = tonumber(c) * 1000,
  }
end

local function key_of_window(base, window, window_us)
  return base .. format('%.0f', window * window_us / 1000000)
end

-- Of three windows in a row the middle one is that of now. Should the last of them hold something,
-- the clock has gone back: then it stays at the beginning of that one.
local function read_windows(s, l, before, at, after)
  before, at, after = whole(before) or 0, whole(at) or 0, whole(after) or 0
  s.window, s.current, s.previous = l.window, at, before
  if after > 0 then
    s.window, s.current, s.previous = l.window + 1, after, at
  end
end

local function keys_of_windows(base, window, window_us)
  return key_of_window(base, window - 1, window_us),
    key_of_window(base, window, window_us),
    key_of_window(base, window + 1, window_us)
end

function windows.open(s, l)
  read_windows(s, l, unpack(call('MGET', keys_of_windows(s.key, l.window, l.window_us))))
end

-- current + previous * (what is left of the window) / window + cost <= limit, exactly.
function windows.fits(s, l, cost)
  local room = l.limit - s.current - cost
  if room < 0 then
    return false
  elseif room >= s.previous then
    return true
  end
  local elapsed = now - s.window * l.window_us
  local left = elapsed > 0 and l.window_us - elapsed or l.window_us
  return at_most(left, l.window_us, room, s.previous)
end

function windows.judge(s, l, cost, part, out)
  local fits, n = windows.fits(s, l, cost), #out
  out[n + 1] = fits and s.current or -1 - s.current
  out[n + 2], out[n + 3] = s.previous, s.window
  return fits
end

local function write_count(s, l, window, count)
  local ttl_ms = l.ttl_ms
  if ARGV[1] ~= '' then
    ttl_ms = ttl_ms + spare_ms
  end
  local key = key_of_window(s.key, window, l.window_us)
  call('SET', key, format('%.0f', count), 'PX', format('%.0f', ttl_ms))
end

function windows.take(s, l, cost)
  s.current = s.current + cost
  write_count(s, l, s.window, s.current)
end

function windows.settle(s, l, cost, part, taken)
  if cost > 0 then
    local room = l.limit - s.current
    if room > 0 then
      windows.take(s, l, cost < room and cost or room)
    end
    return
  end
  local window = (taken - fmod(taken, l.window_us)) / l.window_us
  local lately, left = taken >= now, -cost
  if lately or window == s.window then
    local back = s.current < left and s.current or left
    if back > 0 then
      s.current, left = s.current - back, left - back
      write_count(s, l, s.window, s.current)
    end
  end
  if lately or window == s.window - 1 then
    local back = s.previous < left and s.previous or left
    if back > 0 then
      s.previous = s.previous - back
      write_count(s, l, s.window - 1, s.previous)
    end
  end
end
