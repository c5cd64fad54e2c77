-- Puts the value in the claim's place, and also where there is no key: what has happened must not happen again because
-- the server lost the claim. Anything else stays as it is.
--
-- KEYS[1] the key   ARGV[1] the claim's head   ARGV[2] the value's head   ARGV[3] the value
-- ARGV[4] its time in milliseconds
-- Returns the head that the key had, nil if there was no key.
local head = redis.call('GETRANGE', KEYS[1], 0, #ARGV[1] - 1)
if head == '' and redis.call('EXISTS', KEYS[1]) == 0 then
  head = false
end
if not head or head == ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[2] .. ARGV[3], 'PX', ARGV[4])
end
return head
