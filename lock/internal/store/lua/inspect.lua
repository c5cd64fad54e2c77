-- Reads what a key holds, but not its note or value.
--
-- KEYS[1] the key
-- Returns {the bytes before the note or value, its PTTL in milliseconds and its size in bytes, as one text}, or {false,
-- ''} if the key is absent.
local found = redis.call('GET', KEYS[1])
if not found then
  return {false, ''}
end
local length = string.sub(found, 1, 3) == 'OGc' and 53 or 28
return {string.sub(found, 1, length), string.format('%.0f %.0f', redis.call('PTTL', KEYS[1]), #found)}
