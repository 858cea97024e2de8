-- Reset: forget keys. ARGV: now, then for each key the period of its fixed window, or nothing: such
-- a key ends in the window's number, and the next window may have begun for another clock.
for i = 1, #KEYS do
  local period = tonumber(ARGV[i + 1])
  if period then
    local window = (now - fmod(now, period)) / period
    call('DEL', KEYS[i] .. format('%.0f', window), KEYS[i] .. format('%.0f', window + 1))
  else
    call('DEL', KEYS[i])
  end
end
return now
