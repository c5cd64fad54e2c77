-- Reads what a key holds, but not its note or value. Of a lock, whose note begins with its token, it reads the owner.
--
-- KEYS[1] the key   ARGV[1] how many bytes of an owner to read
-- Returns {the bytes before the note or value, for a lock with its note; the PTTL in milliseconds, the size in bytes
-- and the server's time in milliseconds since 1970, as one text}. If the key is absent, the first is false, and the text
-- has only the time.
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
local found = redis.call('GET', KEYS[1])
if not found then
  return {false, now}
end
local length = 28
if string.sub(found, 1, 3) == 'OGc' then
  length = 53
  if string.sub(found, 54, 69) == string.sub(found, 5, 20) then
    length = 69 + ARGV[1]
  end
end
return {string.sub(found, 1, length), string.format('%.0f %.0f ', redis.call('PTTL', KEYS[1]), #found) .. now}
