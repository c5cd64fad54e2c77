-- Lets the lease last for at least the time given, counted from now, and the key for the hold behind it that the claim
-- says. It never shortens it.
--
-- KEYS[1] the key   ARGV[1] the claim's head   ARGV[2] the time in milliseconds
-- ARGV[3] 'write' to write it in any case: an earlier call's extension may not be on the replicas yet, and a WAIT behind
-- this one looks only at what its own connection has written. (A script sees one time: the rest is set as it was.)
-- Returns the head that the key had, nil if there was no key.
local claim = redis.call('GETRANGE', KEYS[1], '0', '44')
local head = string.sub(claim, 1, 20)
if head == ARGV[1] then
  local hold = 0
  for i = 38, 45 do
    hold = hold * 256 + string.byte(claim, i)
  end
  local left = redis.call('PTTL', KEYS[1])
  local time = hold + ARGV[2]
  if left < time or ARGV[3] == 'write' then
    time = string.format('%.0f', math.max(left, time)) -- Redis 7.2 would write 1e+8 for a number
    redis.call('PEXPIRE', KEYS[1], time)
  end
end
if head == '' and redis.call('EXISTS', KEYS[1]) == 0 then
  return nil
end
return head
