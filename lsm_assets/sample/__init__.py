"""The sample: the flights that left New York in 2013, replayed as operations data arrives in life."""
