-- Extends the lease to at least ARGV[2] from now, and the key's expiry to that plus the claim's hold. It never shortens
-- either. An absent key stays absent, unlike in settle.lua: another caller may have had the key since, so the lease is
-- lost.
--
-- KEYS[1] the key   ARGV[1] the claim's head   ARGV[2] the lease in milliseconds
-- ARGV[3] 'write' to write the expiry even if it stays as it was: the replicas may not have an earlier extension yet,
-- and a WAIT that follows only counts what its own connection has written. (Time stands still while a script runs.)
-- Returns the head of what the key held, nil if the key was absent.
local claim = redis.call('GETRANGE', KEYS[1], '0', '44')
local head = string.sub(claim, 1, 20)
if head == ARGV[1] then
  local hold = 0
  for i = 38, 45 do
    hold = hold * 256 + string.byte(claim, i)
  end
  local left = redis.call('PTTL', KEYS[1])
  local ttl = hold + ARGV[2]
  if left < ttl or ARGV[3] == 'write' then
    ttl = string.format('%.0f', math.max(left, ttl)) -- Redis 7.2 would write 1e+8 for a number
    redis.call('PEXPIRE', KEYS[1], ttl)
  end
end
if head == '' and redis.call('EXISTS', KEYS[1]) == 0 then
  return nil
end
return head
