-- Scan: rows of one partition, as they are at one instant. KEYS: its sort keys, its values. ARGV:
-- from and to as ZRANGEBYLEX says them, whether backwards, how many rows, how many bytes. Reply:
-- whether there are more, then keys and values in turn. A key whose value is gone (somebody evicted
-- or deleted it) is no row: it is taken out, if this server may write just now.
local call = redis.call
local sorts, values = KEYS[1], KEYS[2]
local from, to, back = ARGV[1], ARGV[2], ARGV[3] == '1'
local rows_max, bytes_max = tonumber(ARGV[4]), tonumber(ARGV[5])
local out, rows, bytes = { 0 }, 0, 0
local chunk_max = 256
while true do
  local chunk = math.min(rows_max - rows + 1, chunk_max)
  local keys
  if back then
    keys = call('ZREVRANGEBYLEX', sorts, to, from, 'LIMIT', 0, chunk)
  else
    keys = call('ZRANGEBYLEX', sorts, from, to, 'LIMIT', 0, chunk)
  end
  for _, key in ipairs(keys) do
    local value = call('HGET', values, key)
    if not value then
      redis.pcall('ZREM', sorts, key)
    elseif rows > 0 and (rows >= rows_max or bytes >= bytes_max) then
      out[1] = 1
      return out
    else
      rows = rows + 1
      bytes = bytes + #key + #value
      out[2 * rows] = key
      out[2 * rows + 1] = value
    end
  end
  if #keys < chunk then return out end
  if back then to = '(' .. keys[#keys] else from = '(' .. keys[#keys] end
end
