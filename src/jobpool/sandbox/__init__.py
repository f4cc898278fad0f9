"""One attempt, one child: spawning, confining, measuring, killing. Knows no store."""
