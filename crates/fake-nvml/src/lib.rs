//! A libnvidia-ml.so.1 for tests and for the embedded cluster.
