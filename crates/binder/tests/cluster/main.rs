//! The binder on the embedded cluster, in virtual time: what users and other components see of it.

mod cleaning;
mod crashes;
mod devices;
mod refusals;
mod reservations;
mod sharing;
mod storage;
mod storms;
mod whole;
mod world;
