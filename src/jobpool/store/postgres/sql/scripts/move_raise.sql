SELECT setval(pg_get_serial_sequence('{schema}.{table}', 'id'), max(id))
FROM {schema}.{table}
HAVING max(id) IS NOT NULL
