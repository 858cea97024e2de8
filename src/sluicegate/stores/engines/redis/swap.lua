-- Swap: changes of one partition, if every value there is the expected one. ARGV: the partition, then
-- sixes: the sort key, whether one is expected and which, whether it changes, whether one is to be
-- there and which.
for i = 2, #ARGV, 6 do
  local found = call('HGET', values, ARGV[i])
  if ARGV[i + 1] == '1' then
    if found ~= ARGV[i + 2] then return 0 end
  elseif found then
    return 0
  end
end
for i = 2, #ARGV, 6 do
  if ARGV[i + 3] == '1' then
    change(ARGV[i], ARGV[i + 4], ARGV[i + 5])
  end
end
list_partition()
return 1
