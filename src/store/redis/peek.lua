-- What is there and what time it is, together: a lease is read on the clock that wrote it.
local time = redis.call('TIME')
return {string.format('%.0f', tonumber(time[1]) * 1000000 + tonumber(time[2])), redis.call('HGETALL', KEYS[1])}
