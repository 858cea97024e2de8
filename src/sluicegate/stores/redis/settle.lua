-- Settle: charge more than was taken, or give back, as far as each limit can hold it.
--   ARGV: now, the instant of taking (empty: now), the limits, then for each key the number of its
--   limit, the correction, and the part of it. KEYS: one for each. Reply: now.
local taken = tonumber(ARGV[2]) or now
local limits, at = read_limits(3)
for i = 1, #KEYS do
  local l = limits[tonumber(ARGV[at])]
  local cost, part = tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  if cost ~= 0 or part ~= 0 then
    l.kind.settle(state_of(KEYS[i], l), l, cost, part, taken)
  end
  at = at + 3
end
return now
