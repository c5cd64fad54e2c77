-- Lets the claim last for at least the time given, counted from now. It never shortens it.
--
-- KEYS[1] the key   ARGV[1] the claim's head   ARGV[2] the time in milliseconds
-- Returns the head that the key had, nil if there was no key.
local head = redis.call('GETRANGE', KEYS[1], 0, #ARGV[1] - 1)
if head == ARGV[1] and redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
if head == '' and redis.call('EXISTS', KEYS[1]) == 0 then
  return nil
end
return head
