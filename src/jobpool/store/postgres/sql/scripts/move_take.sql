INSERT INTO {schema}.{table} ({columns}) VALUES ({marks})
{conflict}
RETURNING {columns}
