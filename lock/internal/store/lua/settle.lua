-- Replaces the claim with the value, and publishes a message if a waiter has marked the claim. It also writes the value
-- if the key is absent, unlike extend.lua: the operation has happened, and must not run again because the server lost
-- the claim. Anything else stays as it is.
--
-- KEYS[1] the key and the channel   ARGV[1] the claim's head   ARGV[2] the value with its head (the caller has joined
-- them: the script would copy the value)   ARGV[3] the value's TTL in milliseconds   ARGV[4] the command that publishes
-- Returns the head of what the key held, nil if the key was absent.
local found = redis.call('GETRANGE', KEYS[1], '0', '20')
local head = string.sub(found, 1, 20)
if head == '' and redis.call('EXISTS', KEYS[1]) == 0 then
  head = false
end
-- Our value is there if an earlier try wrote it and its reply was lost. It is written again for the WAIT, as in
-- extend.lua.
if not head or head == ARGV[1] or head == string.sub(ARGV[2], 1, 20) then
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
  if head == ARGV[1] and string.byte(found, 21) == 1 then
    redis.pcall(ARGV[4], KEYS[1], '')
  end
end
return head
