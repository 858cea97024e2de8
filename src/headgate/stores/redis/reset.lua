-- Reset: forget keys. ARGV: now. KEYS: each to be forgotten. Reply: now.
for i = 1, #KEYS do
  call('DEL', KEYS[i])
end
return now
