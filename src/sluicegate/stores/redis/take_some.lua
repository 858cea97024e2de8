-- Take some: the first rung of a ladder of costs that fits.
--   ARGV: now, one limit, then the cost and its part of each rung, falling. KEYS: one.
--   Reply: now, the number of the rung (0: none fits), and what the limit's kind tells of it.
local limits, at = read_limits(2)
local l, key = limits[1], KEYS[1]
local s = state_of(key, l)
local out, rung = { now, 0 }, 0
while ARGV[at] do
  local cost, part = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  rung = rung + 1
  out = { now, 0 }
  if l.kind.judge(s, l, cost, part, out) then
    if cost > 0 or part > 0 then
      l.kind.take(s, l, cost, part)
    end
    out[2] = rung
    break
  end
  at = at + 2
end
return out
