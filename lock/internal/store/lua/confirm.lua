-- Writes the expiry of a value again, unchanged. A WAIT that follows on the same connection then returns how many
-- replicas have the value. (Time stands still while a script runs, so the expiry stays as it was.)
--
-- KEYS[1] the key   ARGV[1] the value's head
-- Returns the head of what the key held, nil if the key was absent.
local head = redis.call('GETRANGE', KEYS[1], '0', '19')
if head == ARGV[1] then
  local left = redis.call('PTTL', KEYS[1])
  if left > 0 then
    redis.call('PEXPIRE', KEYS[1], string.format('%.0f', left)) -- Redis 7.2 would write 1e+8 for a number
  end
end
if head == '' and redis.call('EXISTS', KEYS[1]) == 0 then
  return nil
end
return head
