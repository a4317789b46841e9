-- A copy of a record, unless a later one stands. KEYS 1 is its place; ARGV 1 the fence, 2 whether it is final, 3 the expiry in
-- milliseconds, then the fields. Of two with one fence the one that is not final is later: only a person takes a success back.
local standing = redis.call('HMGET', KEYS[1], 'fence', 'final')
local fence = tonumber(standing[1] or '')
if fence then
  local new = tonumber(ARGV[1])
  if fence > new or (fence == new and standing[2] == '0' and ARGV[2] == '1') then
    return 0
  end
end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'final', ARGV[2], unpack(ARGV, 4))
redis.call('PEXPIREAT', KEYS[1], ARGV[3])
return 1
