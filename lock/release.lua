-- Removes the claim. Anything else under the key stays as it is.
--
-- KEYS[1] the key   ARGV[1] the claim's head
-- Returns the head that the key had, nil if there was no key.
local head = redis.call('GETRANGE', KEYS[1], 0, #ARGV[1] - 1)
if head == ARGV[1] then
  redis.call('DEL', KEYS[1])
end
if head == '' and redis.call('EXISTS', KEYS[1]) == 0 then
  return nil
end
return head
