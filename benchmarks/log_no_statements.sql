-- The server's log is as it was.
alter system reset log_statement;
select pg_reload_conf();
