"""FileIO and the stores behind it: local disks, object stores, HDFS."""
