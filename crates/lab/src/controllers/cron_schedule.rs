//! The five-field schedule of a CronJob (`*/5 8-18 * * mon-fri`, `@hourly`), and when it fires next.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

/// A parsed schedule: one bit per allowed value and field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CronSchedule {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Cron's old rule: if both day fields are restricted, either may match.
    any_day: bool,
    any_weekday: bool,
}

/// Why a schedule cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("schedule `{schedule}`: {problem}")]
pub struct ScheduleError {
    schedule: String,
    problem: String,
}

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
/// No schedule that ever fires waits longer: 29 February on a given weekday comes back within 28 years (40 across 2100).
const FAR_FUTURE_YEARS: i16 = 41;

impl CronSchedule {
    /// Reads a schedule.
    pub fn parse(text: &str) -> Result<Self, ScheduleError> {
        let error = |problem: String| ScheduleError { schedule: text.to_owned(), problem };
        let expanded = match text.trim() {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            other => other,
        };
        let fields: Vec<&str> = expanded.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields.as_slice() else {
            return Err(error(format!("expected 5 fields, found {}", fields.len())));
        };
        let unrestricted = |field: &str| field.starts_with('*') || field.starts_with('?');
        let mut schedule = Self {
            minutes: parse_field(minutes, 0, 59, &[]).map_err(error)?,
            hours: parse_field(hours, 0, 23, &[]).map_err(error)?,
            days: parse_field(days, 1, 31, &[]).map_err(error)?,
            months: parse_field(months, 1, 12, &MONTHS).map_err(error)?,
            weekdays: parse_field(weekdays, 0, 7, &WEEKDAYS).map_err(error)?,
            any_day: unrestricted(days),
            any_weekday: unrestricted(weekdays),
        };
        // 7 is Sunday too.
        schedule.weekdays |= schedule.weekdays >> 7 & 1;
        Ok(schedule)
    }

    /// The first time after `after` at which the schedule fires in `zone`; `None` if never.
    pub fn next_after(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let start = zone.to_datetime(after);
        let last_year = start.year().saturating_add(FAR_FUTURE_YEARS);
        let minute = start.with().second(0).subsec_nanosecond(0).build().ok()?;
        let mut moment = minute.checked_add(1.minute()).ok()?;
        while moment.year() <= last_year {
            moment = if !has(self.months, moment.month()) {
                moment.first_of_month().checked_add(1.month()).ok()?.with().hour(0).minute(0).build().ok()?
            } else if !self.day_matches(moment) {
                moment.checked_add(1.day()).ok()?.with().hour(0).minute(0).build().ok()?
            } else if !has(self.hours, moment.hour()) {
                moment.checked_add(1.hour()).ok()?.with().minute(0).build().ok()?
            } else if !has(self.minutes, moment.minute()) {
                moment.checked_add(1.minute()).ok()?
            } else {
                let fires = zone.to_timestamp(moment).ok()?;
                // Clocks that go back show an hour twice; never answer with the past.
                if fires > after {
                    return Some(fires);
                }
                moment.checked_add(1.minute()).ok()?
            };
        }
        None
    }

    fn day_matches(&self, moment: DateTime) -> bool {
        let day = has(self.days, moment.day());
        let weekday = has(self.weekdays, moment.weekday().to_sunday_zero_offset());
        if self.any_day || self.any_weekday { day && weekday } else { day || weekday }
    }
}

fn has(bits: u64, value: i8) -> bool {
    bits >> u32::from(value.unsigned_abs()) & 1 == 1
}

fn parse_field(field: &str, low: u32, high: u32, names: &[&str]) -> Result<u64, String> {
    field.split(',').try_fold(0, |bits, part| Ok(bits | parse_part(part, low, high, names)?))
}

fn parse_part(part: &str, low: u32, high: u32, names: &[&str]) -> Result<u64, String> {
    let (range, step) = match part.split_once('/') {
        Some((range, step)) => {
            let step = step.parse().ok().filter(|step| *step > 0).ok_or_else(|| format!("bad step in `{part}`"))?;
            (range, Some(step))
        }
        None => (part, None),
    };
    let value = |text: &str| {
        let named = names.iter().position(|name| text.eq_ignore_ascii_case(name)).and_then(|at| u32::try_from(at).ok());
        let number = named.map(|at| at + low).or_else(|| text.parse().ok());
        number.filter(|n| (low..=high).contains(n)).ok_or_else(|| format!("`{text}` is not in {low}-{high}"))
    };
    let (first, last) = match (range, range.split_once('-')) {
        ("*" | "?", _) => (low, high),
        (_, Some((first, last))) => (value(first)?, value(last)?),
        // `5/10` means from 5 on.
        (_, None) => (value(range)?, if step.is_some() { high } else { value(range)? }),
    };
    if first > last {
        return Err(format!("`{part}` runs backwards"));
    }
    Ok((first..=last).step_by(step.unwrap_or(1)).fold(0, |bits, value| bits | 1 << value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(schedule: &str, after: &str) -> String {
        let schedule = CronSchedule::parse(schedule).unwrap();
        schedule.next_after(after.parse().unwrap(), &TimeZone::UTC).map_or("never".to_owned(), |t| t.to_string())
    }

    #[test]
    fn fires_at_the_next_matching_minute() {
        assert_eq!(next("*/5 * * * *", "2026-11-15T22:01:30Z"), "2026-11-15T22:05:00Z");
        assert_eq!(next("0 8-18 * * mon-fri", "2026-11-14T09:00:00Z"), "2026-11-16T08:00:00Z");
        assert_eq!(next("@hourly", "2026-11-15T22:00:00Z"), "2026-11-15T23:00:00Z");
        assert_eq!(next("0 0 29 2 *", "2026-03-01T00:00:00Z"), "2028-02-29T00:00:00Z");
        assert_eq!(next("0 0 31 2 *", "2026-03-01T00:00:00Z"), "never");
    }

    #[test]
    fn either_day_field_matches_when_both_are_restricted() {
        // 2026-11-16 is a Monday, the 20th a Friday.
        assert_eq!(next("0 0 20 * 1", "2026-11-15T00:00:00Z"), "2026-11-16T00:00:00Z");
        assert_eq!(next("0 0 * * 7", "2026-11-16T00:00:00Z"), "2026-11-22T00:00:00Z");
    }

    #[test]
    fn a_bad_schedule_names_what_is_wrong() {
        for bad in ["", "* * * *", "60 * * * *", "*/0 * * * *", "5-1 * * * *", "a * * * *", "* * 0 * *"] {
            assert!(CronSchedule::parse(bad).is_err(), "{bad}");
        }
        let error = CronSchedule::parse("61 * * * *").unwrap_err().to_string();
        assert_eq!(error, "schedule `61 * * * *`: `61` is not in 0-59");
    }
}
