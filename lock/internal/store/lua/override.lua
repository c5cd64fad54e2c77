-- Removes a claim or a value, or replaces it with a value, and publishes a message for the waiters. Anything else under
-- the key stays as it is. So does a claim whose lease has not run out, unless ARGV[3] is 'live'. After the time of
-- ARGV[4] nothing is changed.
--
-- KEYS[1] the key and the channel   ARGV[1] the head of the claim or value   ARGV[2] the command that publishes
-- ARGV[3] 'live' to act also on a claim whose lease has not run out
-- ARGV[4] until when the command may act, by this server's time, in milliseconds since 1970
-- ARGV[5] the value with its head, empty to remove   ARGV[6] the value's TTL in milliseconds
-- Returns the head of what the key held, nil if the key was absent, or a sentence if the lease has not run out or the
-- command came too late.
local time = redis.call('TIME')
if time[1] * 1000 + math.floor(time[2] / 1000) > tonumber(ARGV[4]) then
  return 'the command came too late'
end
local found = redis.call('GETRANGE', KEYS[1], '0', '44')
local head = string.sub(found, 1, 20)
if head == '' and redis.call('EXISTS', KEYS[1]) == 0 then
  return nil
end

-- Reports whether the key holds a claim whose lease has not run out.
local function isLive()
  if string.sub(found, 1, 3) ~= 'OGc' or #found < 45 then
    return false
  end
  local hold = 0
  for i = 38, 45 do
    hold = hold * 256 + string.byte(found, i)
  end
  return hold == 0 or redis.call('PTTL', KEYS[1]) > hold
end

-- The value is there if an earlier try wrote it and its reply was lost. It is written again for the WAIT, as in
-- extend.lua.
local isOurValue = ARGV[5] ~= '' and head == string.sub(ARGV[5], 1, 20)
if head ~= ARGV[1] and not isOurValue then
  return head
end
if ARGV[3] ~= 'live' and isLive() then
  return 'the lease has not run out'
end
if ARGV[5] == '' then
  redis.call('DEL', KEYS[1])
else
  redis.call('SET', KEYS[1], ARGV[5], 'PX', ARGV[6])
end
redis.pcall(ARGV[2], KEYS[1], '')
return head
