"""`scripts/many-hosts`: several hosts on one PostgreSQL that lose no job."""
