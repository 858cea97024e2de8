-- Take, many at once, for sliding windows with a key for each window: each key alone. Layout as in
-- take_paced.lua, but a limit and cost is: the number of keys, how often each is asked for, the
-- limit, its window, the seconds to live and the cost. The reply has three numbers an ask: the count
-- of the window before (-1 - itself where the ask is refused), that of the one before it, and the
-- window's number.
local keep = ARGV[2] == '1'
local out, last = { now }, 1

local at, first = 3, 1
while ARGV[at] do
  local n, asked = tonumber(ARGV[at]), ARGV[at + 1] ~= '' and string.gmatch(ARGV[at + 1], '%d+')
  local l = windows.limit(ARGV[at + 2], ARGV[at + 3], ARGV[at + 4])
  local cost, keys = tonumber(ARGV[at + 5]), {}
  for i = 1, n do
    keys[3 * i - 2], keys[3 * i - 1], keys[3 * i] =
      keys_of_windows(KEYS[first + i - 1], l.window, l.window_us)
  end
  local got = call('MGET', unpack(keys))
  for i = 1, n do
    local s = { key = KEYS[first + i - 1] }
    read_windows(s, l, got[3 * i - 2], got[3 * i - 1], got[3 * i])
    local before = s.current
    for _ = 1, asked and tonumber(asked()) or 1 do
      local fits = windows.fits(s, l, cost)
      out[last + 1] = fits and s.current or -1 - s.current
      out[last + 2], out[last + 3] = s.previous, s.window
      last = last + 3
      if fits and keep then
        s.current = s.current + cost
      end
    end
    if s.current ~= before then
      write_count(s, l, s.window, s.current)
    end
  end
  at, first = at + 6, first + n
end
return out
