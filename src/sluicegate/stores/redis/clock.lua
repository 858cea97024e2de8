-- Clock: the server's own instant, once a call, in whole microseconds; every script begins with it.
-- A double holds them exactly until the year 2255. ARGV[1] is empty but in tests, which give the
-- instant; their time is not the server's, so what they write must not expire by it.
local call, pcall, format, fmod = redis.call, redis.pcall, string.format, math.fmod
local EXACT = 9007199254740992 -- 2^53: from here on doubles no longer hold every whole number

local now, spare_ms = tonumber(ARGV[1]), 3600000
if not now then
  local time = call('TIME')
  now, spare_ms = time[1] * 1000000 + time[2], 1000
end

-- What was written by another program, or by another kind of limit, is as if nothing were there.
local function whole(text)
  local number = tonumber(text)
  if number and number >= 0 and number < EXACT and number % 1 == 0 then
    return number
  end
end
