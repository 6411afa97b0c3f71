-- Granted runs of these numbers, from now on ours.
update bare.runs set state = 2, lease_until = now() + interval '30 seconds'
 where run = any (%s::bigint[]) and state = 1
returning run
