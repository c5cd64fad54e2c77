-- Writes the hold into the claim, at byte 37 from 0, and makes the key expire after the lease and the hold. It never
-- shortens the lease. The script does nothing if less than ARGV[5] is left of the lease: the Hold's caller has timed
-- out.
--
-- KEYS[1] the key   ARGV[1] the claim's head   ARGV[2] the hold as a claim has it, 8 bytes
-- ARGV[3] the hold, ARGV[4] the lease, ARGV[5] what must be left of the lease, all in milliseconds
-- Returns the head of what the key held, nil if the key was absent.
local claim = redis.call('GETRANGE', KEYS[1], '0', '44')
local head = string.sub(claim, 1, 20)
if head == ARGV[1] then
  local before = 0
  for i = 38, 45 do
    before = before * 256 + string.byte(claim, i)
  end
  local left = redis.call('PTTL', KEYS[1])
  local lease = left - before
  if left >= 0 and lease < tonumber(ARGV[5]) then
    return redis.error_reply('LATE the hold has come too late')
  end
  local ttl = string.format('%.0f', ARGV[3] + math.max(ARGV[4], lease)) -- Redis 7.2 would write 1e+8 for a number
  redis.call('SETRANGE', KEYS[1], '37', ARGV[2])
  redis.call('PEXPIRE', KEYS[1], ttl)
end
if head == '' and redis.call('EXISTS', KEYS[1]) == 0 then
  return nil
end
return head
