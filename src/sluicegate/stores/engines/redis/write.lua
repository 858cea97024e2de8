-- Write: changes of one partition, all in this one call. ARGV: the partition, then threes: 1 or 0 for
-- none, the sort key, the value.
for i = 2, #ARGV, 3 do
  change(ARGV[i + 1], ARGV[i], ARGV[i + 2])
end
list_partition()
return 1
