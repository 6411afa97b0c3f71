-- name: notify
-- Wakes whoever listens on a channel. A slow poll suffices where it is lost.
select pg_notify(%(channel)s, '');

-- name: listen_outbox
-- The relay: something was committed to the outbox.
listen a44_outbox;

-- name: listen_granted
-- Executors: something was granted.
listen a44_granted;

-- name: listen_mail
-- Executors: a run has mail.
listen a44_mail;

-- name: listen_pending
-- The scheduler: something became ready, or due sooner.
listen a44_pending;

-- name: listen_ended
-- Gateways: a run ended, and somebody may wait for it.
listen a44_ended;

-- name: heard_channels
-- Proves that a listening connection is not half open, and that the session behind it is the one that listens.
select * from pg_listening_channels();
