-- The store's own record, made once: ARGV 1 is the offered epoch, 2 the offered digest key. It has no expiry.
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'digest_key', ARGV[2])
end
return redis.call('HMGET', KEYS[1], 'epoch', 'digest_key')
