-- What goes out to a topic: keys and values side by side.
insert into bare.told (topic, key, value)
select %s, t.key, t.value from unnest(%s::text[], %s::text[]) t (key, value)
