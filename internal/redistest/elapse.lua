-- ARGV[1]: milliseconds. PEXPIRE deletes a key whose new TTL is not positive.
for _, key in ipairs(redis.call('KEYS', '*')) do
  local left = redis.call('PTTL', key)
  if left >= 0 then
    redis.call('PEXPIRE', key, left - ARGV[1])
  end
end
return redis.status_reply('OK')
