-- How many invoices are in which state.
select status, count(*) from invoices group by status order by status;
