-- Removes what the key holds, and publishes a message for its waiters.
--
-- KEYS[1] the key and the channel   ARGV[1] the command that publishes
redis.call('DEL', KEYS[1])
redis.pcall(ARGV[1], KEYS[1], '')
return nil
