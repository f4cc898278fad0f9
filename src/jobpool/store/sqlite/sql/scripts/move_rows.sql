SELECT {columns} FROM jobpool_{table} ORDER BY 1, 2, 3
