-- Fixed: the state of a fixed window. As text it is the number of the window, and what is used of
-- it: 28333333:3. A count above the limit is what a lowered limit has left.
local function read_window(text, current)
  local window, used = 0, 0
  if text then
    local a, b = string.match(text, '^(%d+):(%d+)$')
    window, used = whole(a), whole(b)
  end
  if not (window and used) or current > window then
    return current, 0
  end
  -- A clock that went back into an earlier window stays in the later one.
  return window, used
end

local function write_window(key, window, used, ttl_ms)
  call('SET', key, format('%.0f:%.0f', window, used), 'PX', ttl_ms)
end
