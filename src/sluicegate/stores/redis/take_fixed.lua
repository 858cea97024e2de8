-- Take, many at once, for fixed windows: each key alone. Layout as in take_paced.lua, but a limit
-- and cost is: the number of keys, how often each is asked for, the limit, its period, the time to
-- live and the cost. The reply has two numbers an ask: what was used before, and of which window.
local keep = ARGV[2] == '1'
local out, last = { now }, 1

local at, first = 3, 1
while ARGV[at] do
  local n, limit, period = tonumber(ARGV[at]), tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  local ttl_ms, cost = ARGV[at + 4], tonumber(ARGV[at + 5])
  local asked = ARGV[at + 1] ~= '' and string.gmatch(ARGV[at + 1], '%d+')
  local current = (now - fmod(now, period)) / period
  local got = call('MGET', unpack(KEYS, first, first + n - 1))
  for i = 1, n do
    local window, stored = read_window(got[i], current)
    -- A limit that was lowered leaves counts above it.
    local used = stored < limit and stored or limit
    local before = used
    for _ = 1, asked and tonumber(asked()) or 1 do
      local fits = used + cost <= limit
      out[last + 1], out[last + 2] = fits and used or -1 - used, window
      last = last + 2
      if fits and keep then
        used = used + cost
      end
    end
    if used ~= before then
      write_window(KEYS[first + i - 1], window, used, ttl_ms)
    end
  end
  at, first = at + 6, first + n
end
return out
