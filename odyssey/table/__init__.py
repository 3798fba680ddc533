"""The machine of the table: rows, what a call means, where it is recorded; no op is in here."""
