-- Reads what a key holds, but not its note or value.
--
-- KEYS[1] the key
-- Returns {the bytes before the note or value, its PTTL in milliseconds, its size in bytes and the server's time in
-- milliseconds since 1970, as one text}. If the key is absent, the first is false, and the text has only the time.
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
local found = redis.call('GET', KEYS[1])
if not found then
  return {false, now}
end
local length = string.sub(found, 1, 3) == 'OGc' and 53 or 28
return {string.sub(found, 1, length), string.format('%.0f %.0f ', redis.call('PTTL', KEYS[1]), #found) .. now}
