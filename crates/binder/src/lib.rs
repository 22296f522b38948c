//! BindRequests carried out as a persistent state machine, and reservations kept.
