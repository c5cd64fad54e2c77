-- Removes the claim, and publishes a message if a waiter has marked it. Anything else under the key stays as it is.
--
-- KEYS[1] the key and the channel   ARGV[1] the claim's head   ARGV[2] the command that publishes
-- Returns the head of what the key held, nil if the key was absent.
local found = redis.call('GETRANGE', KEYS[1], '0', '20')
local head = string.sub(found, 1, 20)
if head == ARGV[1] then
  redis.call('DEL', KEYS[1])
  if string.byte(found, 21) == 1 then
    redis.pcall(ARGV[2], KEYS[1], '')
  end
end
if head == '' and redis.call('EXISTS', KEYS[1]) == 0 then
  return nil
end
return head
