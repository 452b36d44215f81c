"""One open table as operations see it: its files, its rows, its tags and branches."""
