-- What the bare path keeps: runs, the results of their steps, and what it told the world.
drop schema if exists bare cascade;
create schema bare;

create table bare.runs (
    run bigint primary key,
    lane text not null,
    state smallint not null,
    fence integer not null,
    lease_until timestamptz,
    input jsonb not null
) with (fillfactor = 70);

create table bare.results (
    run bigint not null,
    step text not null,
    result jsonb not null,
    at timestamptz not null default now(),
    primary key (run, step)
);

create table bare.told (
    id bigint generated always as identity primary key,
    topic text not null,
    key text not null,
    value text not null
);
