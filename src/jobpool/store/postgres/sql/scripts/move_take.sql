INSERT INTO {schema}.{table} ({columns}) VALUES ({marks})
RETURNING {columns}
