-- Writes the hold into the claim, at byte 37, in the place of what stands there, and lets the key last for hold and lease.
-- It never shortens the lease. Not if less than the time given is left of it: then nobody waits for this any more.
--
-- KEYS[1] the key   ARGV[1] the claim's head   ARGV[2] the hold as it stands in a claim
-- ARGV[3] the hold, ARGV[4] the lease, ARGV[5] what must be left of it, all in milliseconds
-- Returns the head that the key had, nil if there was no key.
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
  local time = string.format('%.0f', ARGV[3] + math.max(ARGV[4], lease)) -- Redis 7.2 would write 1e+8 for a number
  redis.call('SETRANGE', KEYS[1], '37', ARGV[2])
  redis.call('PEXPIRE', KEYS[1], time)
end
if head == '' and redis.call('EXISTS', KEYS[1]) == 0 then
  return nil
end
return head
