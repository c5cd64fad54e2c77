-- Takes the key if it is absent, or returns what the key holds and when it expires. SET with NX and GET is faster. This
-- script is for a caller that waits or only looks, for claims with a fence, for a claim under a hold, and for a server
-- that refuses that SET.
--
-- KEYS[1] the key   KEYS[2] the fence counter, with fencing only
-- ARGV[1] the claim before its fence, empty to take nothing   ARGV[2] the claim after its fence
-- ARGV[3] the TTL in milliseconds   ARGV[4] the first bytes of every claim if the caller waits, or else empty
-- Returns {what the key holds, its PTTL in milliseconds}, or {false, the fence as text} if the key was taken, or
-- {false, ''} if it is free.
local found = redis.call('GET', KEYS[1])

-- Reports whether the key holds a well-formed claim. Anything foreign must stay as it is.
local function isClaim()
  local hasMagic = string.sub(found, 1, #ARGV[4]) == ARGV[4]
  local hasFence = string.find(string.sub(found, 22, 37), '^%d+$')
  if #found < 53 or not hasMagic or not hasFence then
    return false
  end
  local hold = 0
  for i = 38, 45 do
    hold = hold * 256 + string.byte(found, i)
  end
  return hold <= 315360000000 -- ten years
end

if found then
  -- Mark the claim, at byte 20 from 0: its release or settlement then publishes a message. pcall, because a server that
  -- is full or lacks replicas refuses the write.
  if ARGV[4] ~= '' and string.byte(found, 21) == 0 and isClaim() then
    redis.pcall('SETRANGE', KEYS[1], '20', '\1')
  end
  return {found, redis.call('PTTL', KEYS[1])}
end
if ARGV[1] == '' then
  return {false, ''}
end
local fence = '0000000000000000'
if KEYS[2] then
  local now = redis.call('TIME')
  local last = redis.pcall('GET', KEYS[2])
  if type(last) == 'table' then
    return redis.error_reply('FENCE the counter ' .. KEYS[2] .. ' has another type')
  end
  last = tonumber(last or 0) or 0
  fence = string.format('%016.0f', math.max(last + 1, now[1] * 1000000 + now[2]))
  redis.call('SET', KEYS[2], fence)
end
redis.call('SET', KEYS[1], ARGV[1] .. fence .. ARGV[2], 'PX', ARGV[3])
return {false, fence}
