-- Take, many at once, for fixed windows: each key alone. Layout as in take_paced.lua, but a limit
-- and cost is: the number of keys, how often each is asked for, the limit, its period, the time to
-- live and the cost. A key ends in the number of its window, which is added here: only the server
-- knows what time it is. The reply has one number an ask, what was used before.
local keep = ARGV[2] == '1'
local out, last = { now }, 1

local at, first = 3, 1
while ARGV[at] do
  local n, limit, period = tonumber(ARGV[at]), tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  local ttl_ms, cost = ARGV[at + 4], tonumber(ARGV[at + 5])
  local asked = ARGV[at + 1] ~= '' and string.gmatch(ARGV[at + 1], '%d+')
  local window = format('%.0f', (now - fmod(now, period)) / period)
  local names = {}
  for i = 1, n do
    names[i] = KEYS[first + i - 1] .. window
  end
  local got = call('MGET', unpack(names))
  for i = 1, n do
    local stored = whole(got[i]) or 0
    -- A limit that was lowered leaves counts above it.
    local used = stored < limit and stored or limit
    local before = used
    for _ = 1, asked and tonumber(asked()) or 1 do
      last = last + 1
      if used + cost <= limit then
        out[last] = used
        if keep then
          used = used + cost
        end
      else
        out[last] = -1 - used
      end
    end
    if used ~= before then
      call('SET', names[i], format('%.0f', used), 'PX', ttl_ms)
    end
  end
  at, first = at + 6, first + n
end
return out
