"""Look into an artifact's time: table, timeline and page, a board's times, a delay's place."""
