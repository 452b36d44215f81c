"""What several versions of a key become: merge functions and aggregators."""
