//! What queues used in the past.
