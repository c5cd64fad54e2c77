-- Puts the value in the claim's place, and tells those who wait for it. It does so also where there is no key: what has
-- happened must not happen again because the server lost the claim. Anything else stays as it is.
--
-- KEYS[1] the key and the channel   ARGV[1] the claim's head   ARGV[2] how the value's head begins, with the same token
-- behind it   ARGV[3] the value   ARGV[4] its time in milliseconds   ARGV[5] the command that publishes
-- Returns the head that the key had, nil if there was no key, and a sentence if the lease has left another value.
local found = redis.call('GETRANGE', KEYS[1], 0, #ARGV[1])
local head = string.sub(found, 1, #ARGV[1])
if head == '' and redis.call('EXISTS', KEYS[1]) == 0 then
  head = false
end
local left = ARGV[2] .. string.sub(ARGV[1], #ARGV[2] + 1)
local value = left .. ARGV[3]
if head == left and redis.call('GET', KEYS[1]) ~= value then
  return 'another Settle of this lease was first'
end
-- The value itself is written again when its reply was lost: it may not be on the replicas yet, as in extend.lua.
if not head or head == ARGV[1] or head == left then
  redis.call('SET', KEYS[1], value, 'PX', ARGV[4])
  if head == ARGV[1] and string.byte(found, #ARGV[1] + 1) == 1 then
    redis.pcall(ARGV[5], KEYS[1], '')
  end
end
return head
