"""Data definition: create, alter and open tables; definitions that contradict themselves are refused."""
