-- Take, many at once, for sliding windows: each key alone. Layout as in take_paced.lua, but a limit
-- and cost is: the number of keys, how often each is asked for, the limit's four words, and the
-- cost. The reply has two values an ask: 0, or -1 if it is refused, and the text that was there before.
local keep = ARGV[2] == '1'
local out, last = { now }, 1

local at, first = 3, 1
while ARGV[at] do
  local n, asked = tonumber(ARGV[at]), ARGV[at + 1] ~= '' and string.gmatch(ARGV[at + 1], '%d+')
  local l = cells.limit(ARGV[at + 2], ARGV[at + 3], ARGV[at + 4], ARGV[at + 5])
  local cost = tonumber(ARGV[at + 6])
  local got = call('MGET', unpack(KEYS, first, first + n - 1))
  local s = {}
  for i = 1, n do
    cells.read(s, l, got[i])
    local text = s.text
    for _ = 1, asked and tonumber(asked()) or 1 do
      local fits = cells.fits(s, l, cost)
      out[last + 1], out[last + 2] = fits and 0 or -1, s.text
      last = last + 2
      if fits and keep and cost > 0 then
        count(s, l, l.n + 1, cost)
        s.text = text_of(s, l)
      end
    end
    if s.text ~= text then
      call('SET', KEYS[first + i - 1], s.text, 'PX', l.ttl_ms)
    end
  end
  at, first = at + 7, first + n
end
return out
