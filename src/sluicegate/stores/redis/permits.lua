-- Permits: the places of one key in a sorted set. KEYS[1] is the set; a member is one place, its
-- score the instant, in whole microseconds, at which it is free again. A permit of three places has
-- the members ID, ID/2 and ID/3, which are written and removed together: so ZCARD is what is used,
-- and the score at a rank says when so many places will have expired.
local set = KEYS[1]
local CHUNK = 500 -- members in one call; a Lua function takes fewer than 8,000 arguments

local function instant(score)
  return score and tonumber(score)
end

-- All members of a permit, a chunk at a time; `before` stands before each of them, if given.
local function each(id, count, command, before)
  local args, changed = {}, 0
  for i = 1, count do
    if before then
      args[#args + 1] = before
    end
    args[#args + 1] = i == 1 and id or id .. '/' .. i
    if i % CHUNK == 0 or i == count then
      changed = changed + call(command, set, unpack(args))
      args = {}
    end
  end
  return changed
end

-- The instant of the place that is free last, or now if none is held.
local function latest()
  local last = call('ZRANGE', set, -1, -1, 'WITHSCORES')
  local at = instant(last[2])
  return at and at > now and at or now
end

-- The set is kept until its last place is free.
local function keep_set()
  call('PEXPIRE', set, format('%.0f', math.ceil((latest() - now) / 1000) + spare_ms))
end

local function alive(id)
  local at = instant(call('ZSCORE', set, id))
  return at ~= nil and at ~= false and at > now
end
