//! Behaviour of ownership that has no fixture, and properties.
