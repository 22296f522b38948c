//! Replays a trace: applies its deltas, plans at its cycles, and compares the plans.

use std::io::Read;

use kai_core::{Cluster, plan::Plan, policy::Policy, time::Time};

use crate::{
    Difference, Error, Reader, Record,
    record::{decode, encode_plan},
};

/// How a replay went.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Report {
    /// Deltas that were applied.
    pub deltas: u64,
    /// Cycles that were planned.
    pub cycles: u64,
    /// The first difference, with which the replay ended; `None`: every plan came out as recorded.
    pub difference: Option<Difference>,
}

/// Replays a trace with the core. The first difference between a plan and the recorded one ends it.
pub fn replay<R: Read>(reader: Reader<R>) -> Result<Report, Error> {
    replay_with(reader, kai_core::plan)
}

/// Replays a trace with any planner.
pub fn replay_with<R: Read>(
    mut reader: Reader<R>,
    mut planner: impl FnMut(&mut Cluster, Time, &Policy) -> Plan,
) -> Result<Report, Error> {
    let mut cluster = Cluster::new();
    let mut policy = None;
    let mut report = Report::default();
    while let Some(record) = reader.read()? {
        match record {
            Record::Delta(delta) => {
                cluster.apply(delta);
                report.deltas += 1;
            }
            Record::Policy(changed) => policy = Some(changed),
            Record::Cycle { now, plan: recorded } => {
                let policy = policy.as_deref().ok_or(Error::NoPolicy { record: reader.records() })?;
                let replayed = planner(&mut cluster, now, policy);
                report.cycles += 1;
                if encode_plan(&replayed)? != recorded {
                    let recorded = decode(&recorded, reader.records())?;
                    report.difference =
                        Some(Difference::between(&recorded, &replayed, &cluster).at(report.cycles, now));
                    return Ok(report);
                }
            }
        }
    }
    Ok(report)
}
