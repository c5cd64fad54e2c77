-- Tells how long the key will last, in milliseconds, if it still holds the claim given.
--
-- KEYS[1] the key   ARGV[1] the claim's head
-- Returns a number as text, nil if the key holds something else or nothing.
if redis.call('GETRANGE', KEYS[1], 0, #ARGV[1] - 1) ~= ARGV[1] then
  return nil
end
return tostring(redis.call('PTTL', KEYS[1]))
