-- Cells: the state of a sliding window. As text it is the number of the newest cell, an x, how many
-- cells a window has, and a count each, oldest first: 1700000000x10:0,3,1,... The first is the one
-- that is just expiring. Counts stay text until they change.
-- Whether a/b <= c/d: exact at any size, by Euclid's division, where a product would be rounded.
local function at_most(a, b, c, d)
  while true do
    local a_rest, c_rest = fmod(a, b), fmod(c, d)
    local a_whole, c_whole = (a - a_rest) / b, (c - c_rest) / d
    if a_whole ~= c_whole then
      return a_whole < c_whole
    elseif a_rest == 0 then
      return true
    elseif c_rest == 0 then
      return false
    end
    a, b, c, d = d, c_rest, b, a_rest
  end
end

local cells = {}

function cells.limit(a, b, c, d)
  local cell_us, n = tonumber(b), tonumber(c)
  return {
    limit = tonumber(a),
    cell_us = cell_us,
    n = n,
    cell = (now - fmod(now, cell_us)) / cell_us,
    ttl_ms = d,
  }
end

-- The counts as text and their sum; nil if the text is not one of n cells.
local function read_counts(text, n)
  local cell, of, rest = string.match(text, '^(%d+)x(%d+):([%d,]+)$')
  cell = whole(cell)
  if not cell or tonumber(of) ~= n then
    return nil
  end
  local counts, m = {}, 0
  for count in string.gmatch(rest, '%d+') do
    m = m + 1
    counts[m] = count
  end
  if m == n + 1 then
    return cell, counts
  end
end

function cells.read(s, l, text)
  local n, cell, counts = l.n, nil, nil
  if text then
    cell, counts = read_counts(text, n)
  end
  if not counts then
    text, cell, counts = '', -n - 1, {}
  end
  local passed, sum = l.cell - cell, 0
  if passed > 0 then
    for i = 1, n + 1 do
      counts[i] = counts[i + passed] or '0'
    end
    cell = l.cell
  end
  for i = 2, n + 1 do
    sum = sum + counts[i]
  end
  s.text, s.cell, s.counts, s.whole = text, cell, counts, sum
end

function cells.fits(s, l, cost)
  local room, expiring = l.limit - s.whole - cost, tonumber(s.counts[1])
  if room < 0 then
    return false
  elseif room >= expiring then
    return true
  end
  local elapsed = now - s.cell * l.cell_us
  local left = elapsed > 0 and l.cell_us - elapsed or l.cell_us
  return at_most(left, l.cell_us, room, expiring)
end

function cells.judge(s, l, cost, part, out)
  local fits, n = cells.fits(s, l, cost), #out
  out[n + 1], out[n + 2] = fits and 0 or -1, s.text
  return fits
end

-- Count so much more in one place, or less; the text is as it will be written.
local function count(s, l, place, more)
  s.counts[place] = format('%.0f', s.counts[place] + more)
  if place > 1 then
    s.whole = s.whole + more
  end
end

local function text_of(s, l)
  return format('%.0fx%.0f:', s.cell, l.n) .. table.concat(s.counts, ',')
end

local function write_cells(s, l)
  s.text = text_of(s, l)
  call('SET', s.key, s.text, 'PX', l.ttl_ms)
end

function cells.take(s, l, cost)
  count(s, l, l.n + 1, cost)
  write_cells(s, l)
end

local function give_back(s, l, place, cost)
  local held = tonumber(s.counts[place])
  local back = held < cost and held or cost
  count(s, l, place, -back)
  return cost - back
end

function cells.settle(s, l, cost, part, taken)
  if cost > 0 then
    local room = l.limit - s.whole
    if room > 0 then
      cells.take(s, l, cost < room and cost or room)
    end
    return
  elseif s.text == '' then
    return
  end
  local newest, left = l.n + 1, -cost
  if taken >= now then
    -- Just now: out of the newest, then out of those that leave first.
    left = give_back(s, l, newest, left)
    for place = 2, l.n do
      left = give_back(s, l, place, left)
    end
    left = give_back(s, l, 1, left)
  else
    local place = newest - s.cell + (taken - fmod(taken, l.cell_us)) / l.cell_us
    if place >= 1 and place <= newest then
      left = give_back(s, l, place, left)
    end
  end
  if left < -cost then
    write_cells(s, l)
  end
end
