-- Takes the key if there is none, or tells what it holds and how long it will last: what SET with NX and GET does, for
-- those that need more. They want claims numbered, or wait, or only look, or met a server older than 7.0.
--
-- KEYS[1] the key   KEYS[2] the fence counter, if claims are numbered
-- ARGV[1] the claim up to its fence, empty to take nothing   ARGV[2] the claim from behind its fence
-- ARGV[3] the lease in milliseconds   ARGV[4] what every claim begins with, if the caller waits, or else empty
-- Returns {what the key holds, its time in milliseconds}, {false, the fence as text} if it is ours now, and {false, ''}
-- if it is free.
local held = redis.call('GET', KEYS[1])

-- Whether what is held is a claim, in all its parts: what is foreign must stay as it is.
local function isClaim()
  if #held < 53 or string.sub(held, 1, #ARGV[4]) ~= ARGV[4] or not string.find(string.sub(held, 22, 37), '^%d+$') then
    return false
  end
  local hold = 0
  for i = 38, 45 do
    hold = hold * 256 + string.byte(held, i)
  end
  return hold <= 315360000000 -- ten years
end

if held then
  -- Byte 20 of a claim asks its holder to publish its end. A server that is full, or has lost its replicas, refuses it.
  if ARGV[4] ~= '' and string.byte(held, 21) == 0 and isClaim() then
    redis.pcall('SETRANGE', KEYS[1], '20', '\1')
  end
  return {held, redis.call('PTTL', KEYS[1])}
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
