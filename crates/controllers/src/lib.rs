//! What PodGroups and Queues hold, as their status.
