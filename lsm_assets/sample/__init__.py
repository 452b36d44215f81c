"""The sample: flights that left New York in 2013, replayed in the order in which their data would have arrived."""
