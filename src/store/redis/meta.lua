-- The store's own record, made once: ARGV 1 is the offered epoch, 2 the offered digest key. It has no expiry.
-- Answers {made, epoch, digest key}.
local made = 0
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'digest_key', ARGV[2])
  made = 1
end
local standing = redis.call('HMGET', KEYS[1], 'epoch', 'digest_key')
return {made, standing[1], standing[2]}
