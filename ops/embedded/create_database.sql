-- A database and a login role of the same name that owns it and is alone in it. May be run again.
\getenv name A44_DATABASE
\getenv password A44_OWNER_PASSWORD

select format('create role %I login', :'name')
 where not exists (select from pg_roles where rolname = :'name') \gexec

select format('alter role %I password %L', :'name', :'password') \gexec

select format('create database %I owner %I', :'name', :'name')
 where not exists (select from pg_database where datname = :'name') \gexec

select format('revoke connect, temporary on database %I from public', :'name') \gexec
