-- Leases: hold a name for some time, and see who holds which. ARGV: now, name, what it is held with,
-- how long in us. Reply: 1, then each name and what it is held with; or 0 and what another holds
-- this name with. Names are fields of the hash KEYS[1]: when it ends, a space, what it is held with.
local found = call('HGETALL', KEYS[1])
local reply = { 1 }
for at = 1, #found, 2 do
  local name, space = found[at], string.find(found[at + 1], ' ', 1, true)
  local ends = space and whole(string.sub(found[at + 1], 1, space - 1))
  local with = space and string.sub(found[at + 1], space + 1)
  if not ends or ends <= now then
    call('HDEL', KEYS[1], name)
  elseif name == ARGV[2] then
    if with ~= ARGV[3] then
      return { 0, with }
    end
  else
    reply[#reply + 1] = name
    reply[#reply + 1] = with
  end
end
local span = tonumber(ARGV[4])
if span > 0 then
  call('HSET', KEYS[1], ARGV[2], format('%.0f', now + span) .. ' ' .. ARGV[3])
  call('PEXPIRE', KEYS[1], math.ceil(span / 1000) + spare_ms)
  reply[#reply + 1] = ARGV[2]
  reply[#reply + 1] = ARGV[3]
else
  call('HDEL', KEYS[1], ARGV[2])
end
return reply
