-- Replaces the claim of a lock with another one, which begins now, and keeps the mark. Anything else under the key stays
-- as it is: the claim of another token, and one that is no lock's, whose note does not begin with its token.
--
-- KEYS[1] the key   KEYS[2] the fence counter, with fencing only
-- ARGV[1] the claim's head   ARGV[2] the new claim's head   ARGV[3] the new claim after its fence
-- ARGV[4] the TTL in milliseconds
-- Returns {false, the fence as text} if the key holds the new claim, {false, ''} if the key was absent, or else {what it
-- holds, its PTTL in milliseconds}.
local found = redis.call('GET', KEYS[1])
if not found then
  return {false, ''}
end
local head = string.sub(found, 1, 20)
-- The new claim is there if an earlier try wrote it and its reply was lost. Its expiry is written again for the WAIT, as
-- in extend.lua, and is not shortened: the command may come late.
if head == ARGV[2] then
  local ttl = math.max(redis.call('PTTL', KEYS[1]), tonumber(ARGV[4]))
  redis.call('PEXPIRE', KEYS[1], string.format('%.0f', ttl)) -- Redis 7.2 would write 1e+8 for a number
  return {false, string.sub(found, 22, 37)}
end
if head ~= ARGV[1] or string.sub(found, 54, 69) ~= string.sub(found, 5, 20) then
  return {found, redis.call('PTTL', KEYS[1])}
end
local fence = '0000000000000000'
if KEYS[2] then -- as in claim.lua
  local now = redis.call('TIME')
  local last = redis.pcall('GET', KEYS[2])
  if type(last) == 'table' then
    return redis.error_reply('FENCE the counter ' .. KEYS[2] .. ' has another type')
  end
  last = tonumber(last or 0) or 0
  fence = string.format('%016.0f', math.max(last + 1, now[1] * 1000000 + now[2]))
  redis.call('SET', KEYS[2], fence)
end
redis.call('SET', KEYS[1], ARGV[2] .. string.sub(found, 21, 21) .. fence .. ARGV[3], 'PX', ARGV[4])
return {false, fence}
