-- Where a token may be used from.
-- Why: a token that leaked from a pipeline is of no use elsewhere. None means anywhere, as for all tokens of before.
-- A gateway of before this migration does not look at it: make such tokens once all gateways are of this version.
-- Locks: ACCESS EXCLUSIVE on tokens for a new column without a rewrite.

alter table automation.tokens add column networks cidr[] not null default '{}';
