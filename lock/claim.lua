-- SET key claim NX GET PX lease, for a server older than 7.0, which does not take NX and GET together.
--
-- KEYS[1] the key   ARGV[1] the claim   ARGV[2] the lease in milliseconds
-- Returns nil if the key is ours now, or else what it holds.
local held = redis.call('GET', KEYS[1])
if not held then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
end
return held
