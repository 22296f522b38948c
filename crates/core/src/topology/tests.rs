//! The rules of the search, one by one, and the fast search against a slow one.

mod fixture;
mod random;
mod rules;
mod twin;
