-- Take: groups of charges, each group all or nothing, of any kinds.
--   ARGV: now, keep, count_refused, the limits, then for each group its size and, for each of its
--   charges, the number of its limit, its cost, and the part of it.
--   KEYS: one for each charge, in that order; no key twice in one group.
--   Reply: now, then for each group its verdict and what its charges' kinds tell.
local keep, count_refused = ARGV[2] == '1', ARGV[3] == '1'
local limits, at = read_limits(4)
local out, key = { now }, 0
while ARGV[at] do
  local size, admitted, group = tonumber(ARGV[at]), true, {}
  local verdict_at = #out + 1
  out[verdict_at] = 0
  at = at + 1
  for i = 1, size do
    key = key + 1
    local l = limits[tonumber(ARGV[at])]
    local cost, part = tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
    local s = state_of(KEYS[key], l)
    if not l.kind.judge(s, l, cost, part, out) then
      admitted = false
    end
    group[i] = { s, l, cost, part }
    at = at + 3
  end
  if admitted then
    out[verdict_at] = 1
  end
  if keep and (admitted or count_refused) then
    for i = 1, size do
      local s, l, cost, part = unpack(group[i])
      if cost == 0 and part == 0 then
        -- a look
      elseif admitted then
        l.kind.take(s, l, cost, part)
      else
        l.kind.settle(s, l, cost, part, now)
      end
    end
  end
end
return out
