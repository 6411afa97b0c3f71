-- The project's own table, in the project's own database.
create table if not exists invoices (
    id text primary key,
    status text not null default 'open'
);
