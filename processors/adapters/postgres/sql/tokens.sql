-- name: find_tokens
-- The tokens with these hashes that still stand. Expiry is judged here, by the database's clock.
select token_hash, token_id, project_id, name, scopes, expires_at, networks
  from automation.tokens
 where token_hash = any(%(hashes)s)
   and revoked_at is null
   and (expires_at is null or expires_at > clock_timestamp());

-- name: create_token
-- Stores a new token by its hash; the text itself is kept nowhere.
insert into automation.tokens (token_hash, token_id, project_id, name, scopes, expires_at, networks)
values (%(token_hash)s, %(token_id)s, %(project_id)s, %(name)s, %(scopes)s,
        clock_timestamp() + make_interval(secs => %(expires_in)s::double precision), %(networks)s::cidr[]);

-- name: record_token
-- Who may call the API is audited.
insert into automation.audit_log (project_id, actor, action, subject, details)
values (%(project_id)s, 'operator', 'token.create', %(token_id)s, %(details)s);
