-- Reset: forget keys. KEYS: each to be forgotten. ARGV: now, then for each key nothing, or the window
-- whose beginning belongs to its end: then all three that may count are forgotten. Reply: now.
for i = 1, #KEYS do
  local window_us = tonumber(ARGV[i + 1])
  if window_us then
    local window = (now - fmod(now, window_us)) / window_us
    call('DEL', keys_of_windows(KEYS[i], window, window_us))
  else
    call('DEL', KEYS[i])
  end
end
return now
