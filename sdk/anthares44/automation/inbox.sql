-- Statements of `Inbox`, for any database with a primary key over two columns. `{table}` is a checked name; `{consumer}`
-- and `{event}` are the marks of the connection's own driver.

-- name: create
create table if not exists {table} (
    consumer varchar(200) not null,
    event_id varchar(200) not null,
    handled_at timestamp not null default current_timestamp,
    primary key (consumer, event_id)
)

-- name: find
select 1 from {table} where consumer = {consumer} and event_id = {event}

-- name: note
insert into {table} (consumer, event_id) values ({consumer}, {event})
