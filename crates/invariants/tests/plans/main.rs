//! Whole plans: random clusters through cycles, with every invariant after each; hostile values; and the invariants themselves, each on a plan
//! that breaks it.

mod broken_plans;
mod broken_rules;
mod driver;
mod generator;
mod hostile;
mod random;
mod rules;
