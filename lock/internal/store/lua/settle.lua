-- Puts the value in the claim's place, and tells those who wait for it. It does so also where there is no key: what has
-- happened must not happen again because the server lost the claim. Anything else stays as it is.
--
-- KEYS[1] the key and the channel   ARGV[1] the claim's head   ARGV[2] the value with its head, which is as long
-- ARGV[3] its time in milliseconds   ARGV[4] the command that publishes
-- (Joined here, the two would be copied once more, while everybody else waits.)
-- Returns the head that the key had, nil if there was no key, and a sentence if the lease has left another value.
local found = redis.call('GETRANGE', KEYS[1], '0', '20')
local head = string.sub(found, 1, 20)
if head == '' and redis.call('EXISTS', KEYS[1]) == 0 then
  head = false
end
local left = head == string.sub(ARGV[2], 1, 20)
if left and redis.call('GET', KEYS[1]) ~= ARGV[2] then
  return 'another Settle of this lease was first'
end
-- The value itself is written again when its reply was lost: it may not be on the replicas yet, as in extend.lua.
if not head or head == ARGV[1] or left then
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
  if head == ARGV[1] and string.byte(found, 21) == 1 then
    redis.pcall(ARGV[4], KEYS[1], '')
  end
end
return head
