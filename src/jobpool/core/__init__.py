"""The pure middle: rules and records, with no I/O, no clock and no process."""
