-- From the next connection's start, or a moment later, every statement of every connection goes to the server's log.
alter system set log_statement = 'all';
select pg_reload_conf();
