-- Throttle: asks of CL.THROTTLE, one after the other. A double does not hold the nanoseconds since the
-- epoch, so every instant and span is two numbers: whole seconds, and nanoseconds from 0 to below a
-- second. A key holds its schedule's instant as digits, the last nine of which are nanoseconds.
--   ARGV: now, then for each ask the number of its key, and tolerance and charge in two numbers each.
--   KEYS: each once.
--   Reply: now, then for each ask the instant before in two numbers, the first of them -1 - itself
--   where the ask is limited.
local SECOND = 1000000000
local now_s, now_ns = math.floor(now / 1000000), fmod(now, 1000000) * 1000

local function sum(s, ns, more_s, more_ns)
  s, ns = s + more_s, ns + more_ns
  if ns >= SECOND then
    return s + 1, ns - SECOND
  end
  return s, ns
end

local function before(s, ns, than_s, than_ns)
  return s < than_s or (s == than_s and ns < than_ns)
end

-- What was written by another program is as if nothing were there.
local function read(text)
  if type(text) == 'string' and #text > 9 and #text < 20 and string.match(text, '^%d+$') then
    return tonumber(string.sub(text, 1, -10)), tonumber(string.sub(text, -9))
  end
  return 0, 0
end

-- It is kept until it says no more than nothing would: a millisecond too long rather than too short.
local function write(key, s, ns)
  if not before(now_s, now_ns, s, ns) then
    call('DEL', key)
    return
  end
  local ttl_ms = math.ceil((s - now_s) * 1000 + (ns - now_ns) / 1000000)
  if ARGV[1] ~= '' then
    ttl_ms = ttl_ms + spare_ms
  end
  call('SET', key, format('%.0f%09.0f', s, ns), 'PX', format('%.0f', ttl_ms))
end

local got, states, out, last = call('MGET', unpack(KEYS)), {}, { now }, 1
for at = 2, #ARGV, 5 do
  local place = tonumber(ARGV[at])
  local state = states[place]
  if not state then
    state = { read(got[place]) }
    states[place] = state
  end
  local s, ns = state[1], state[2]
  local charge_s, charge_ns = tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
  local new_s, new_ns = now_s, now_ns
  if before(now_s, now_ns, s, ns) then
    new_s, new_ns = s, ns
  end
  new_s, new_ns = sum(new_s, new_ns, charge_s, charge_ns)
  local bar_s, bar_ns = sum(now_s, now_ns, tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]))
  local limited = before(bar_s, bar_ns, new_s, new_ns)
  out[last + 1], out[last + 2] = limited and -1 - s or s, ns
  last = last + 2
  if not limited and (charge_s ~= 0 or charge_ns ~= 0) then
    state[1], state[2], state.changed = new_s, new_ns, true
  end
end
for place, state in pairs(states) do
  if state.changed then
    write(KEYS[place], state[1], state[2])
  end
end
return out
