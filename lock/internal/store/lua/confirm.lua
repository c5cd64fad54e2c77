-- Writes the expiry of a value again, unchanged: a WAIT behind this, on the same connection, then tells how many replicas
-- have the value. (A script sees one time, so the expiry stays what it was.)
--
-- KEYS[1] the key   ARGV[1] the value's head
-- Returns the head that the key had, nil if there was no key.
local head = redis.call('GETRANGE', KEYS[1], '0', '19')
if head == ARGV[1] then
  local left = redis.call('PTTL', KEYS[1])
  if left > 0 then
    redis.call('PEXPIRE', KEYS[1], string.format('%.0f', left)) -- Redis 7.2 would write 1e+8 for a number
  end
end
if head == '' and redis.call('EXISTS', KEYS[1]) == 0 then
  return nil
end
return head
