-- Writes the hold into the claim, at byte 37, and lets the key last for hold and lease. Not if less than the time given
-- is left of the claim: then nobody waits for this any more.
--
-- KEYS[1] the key   ARGV[1] the claim's head   ARGV[2] the hold as it stands in a claim
-- ARGV[3] hold and lease in milliseconds   ARGV[4] what must be left, in milliseconds
-- Returns the head that the key had, nil if there was no key.
local head = redis.call('GETRANGE', KEYS[1], '0', '19')
if head == ARGV[1] then
  local left = redis.call('PTTL', KEYS[1])
  if left >= 0 and left < tonumber(ARGV[4]) then
    return redis.error_reply('LATE the hold has come too late')
  end
  redis.call('SETRANGE', KEYS[1], '37', ARGV[2])
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
if head == '' and redis.call('EXISTS', KEYS[1]) == 0 then
  return nil
end
return head
