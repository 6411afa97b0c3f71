-- Runs that have ended.
update bare.runs set state = 9 where run = any (%s::bigint[]) and fence = 1 and state = 2
