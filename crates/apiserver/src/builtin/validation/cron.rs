//! Schedules of cron jobs in the standard five fields, judged as the real server judges them.

use serde_json::Value;

use super::report::Report;
use crate::builtin::access::Read;
use crate::builtin::field_path::Path;

struct Bounds {
    low: u32,
    high: u32,
    names: &'static [&'static str],
}

const FIELDS: [Bounds; 5] = [
    Bounds { low: 0, high: 59, names: &[] },
    Bounds { low: 0, high: 23, names: &[] },
    Bounds { low: 1, high: 31, names: &[] },
    Bounds {
        low: 1,
        high: 12,
        names: &["", "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    },
    Bounds { low: 0, high: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] },
];

/// `schedule` and `timeZone` of a cron job.
pub(super) fn validate_schedule(report: &mut Report, path: Path<'_>, spec: &Value, old: &Value) {
    let schedule = spec.text("schedule");
    let schedule_path = path.child("schedule");
    if schedule.is_empty() {
        report.required(schedule_path, "");
    } else {
        if let Err(why) = check(schedule) {
            report.invalid(schedule_path, schedule, why);
        }
        let zone_allowed = old.text("schedule").contains("TZ");
        if schedule.contains("TZ") && !zone_allowed {
            report.invalid(schedule_path, schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead");
        } else if schedule.contains("TZ") && spec.has("timeZone") {
            report.invalid(schedule_path, schedule, "cannot use both timeZone field and TZ or CRON_TZ in schedule");
        }
    }
    if let Some(zone) = spec.at("timeZone").as_str()
        && old.at("timeZone") != spec.at("timeZone")
    {
        validate_zone(report, path.child("timeZone"), zone);
    }
}

fn validate_zone(report: &mut Report, path: Path<'_>, zone: &str) {
    let fine = |part: &str| {
        let characters = part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_+".contains(&byte));
        !matches!(part, "" | "." | "..") && !part.starts_with('-') && part.len() <= 14 && characters
    };
    if zone.is_empty() {
        report.invalid(path, zone, "timeZone must be nil or non-empty string");
    } else if !zone.split('/').all(fine) {
        report.invalid(path, zone, format!("unknown time zone {zone}"));
    } else if zone.eq_ignore_ascii_case("local") {
        let why = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        report.invalid(path, zone, why);
    } else if jiff::tz::TimeZone::get(zone).is_err() {
        report.invalid(path, zone, format!("unknown time zone {zone}"));
    }
}

fn check(schedule: &str) -> Result<(), String> {
    let schedule = match schedule.strip_prefix("TZ=").or_else(|| schedule.strip_prefix("CRON_TZ=")) {
        Some(rest) => rest.split_once(' ').map_or("", |(_, rest)| rest).trim_start(),
        None => schedule,
    };
    if schedule.starts_with('@') {
        return check_descriptor(schedule);
    }
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if fields.len() != 5 {
        return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
    }
    fields.iter().zip(&FIELDS).try_for_each(|(field, bounds)| {
        field.split(',').filter(|part| !part.is_empty()).try_for_each(|part| check_range(part, bounds))
    })
}

fn check_descriptor(schedule: &str) -> Result<(), String> {
    const KNOWN: &[&str] = &["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];
    if KNOWN.contains(&schedule) {
        return Ok(());
    }
    match schedule.strip_prefix("@every ") {
        Some(duration) if is_duration(duration) => Ok(()),
        Some(duration) => Err(format!("failed to parse duration {schedule}: time: invalid duration \"{duration}\"")),
        None => Err(format!("unrecognized descriptor: {schedule}")),
    }
}

/// A Go duration such as `1h30m`.
fn is_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    let mut parts = 0;
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (digits, tail) = rest.split_at(number);
        let unit = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit);
        if digits.trim_matches('.').is_empty() || !matches!(unit, "ns" | "us" | "µs" | "ms" | "s" | "m" | "h") {
            return false;
        }
        rest = tail;
        parts += 1;
    }
    parts > 0
}

fn check_range(part: &str, bounds: &Bounds) -> Result<(), String> {
    let (range, step) = match part.split_once('/') {
        Some((_, step)) if step.contains('/') => return Err(format!("too many slashes: {part}")),
        Some((range, step)) => (range, Some(step)),
        None => (part, None),
    };
    let (mut low, mut high) = (bounds.low, bounds.high);
    if range != "*" && range != "?" {
        let (first, last) = range.split_once('-').map_or((range, None), |(first, last)| (first, Some(last)));
        low = number(first, bounds)?;
        high = match last {
            Some(last) if last.contains('-') => return Err(format!("too many hyphens: {part}")),
            Some(last) => number(last, bounds)?,
            None if step.is_some() => bounds.high,
            None => low,
        };
    }
    if let Some(step) = step
        && plain_number(step)? == 0
    {
        return Err(format!("step of range should be a positive number: {part}"));
    }
    if low < bounds.low {
        return Err(format!("beginning of range ({low}) below minimum ({}): {part}", bounds.low));
    }
    if high > bounds.high {
        return Err(format!("end of range ({high}) above maximum ({}): {part}", bounds.high));
    }
    if low > high {
        return Err(format!("beginning of range ({low}) beyond end of range ({high}): {part}"));
    }
    Ok(())
}

fn number(text: &str, bounds: &Bounds) -> Result<u32, String> {
    let name = bounds.names.iter().position(|name| !name.is_empty() && name.eq_ignore_ascii_case(text));
    match name {
        Some(index) => Ok(u32::try_from(index).unwrap_or(u32::MAX)),
        None => plain_number(text),
    }
}

fn plain_number(text: &str) -> Result<u32, String> {
    match text.parse::<i64>() {
        Ok(number) if number < 0 => Err(format!("negative number ({number}) not allowed: {text}")),
        Ok(number) => Ok(u32::try_from(number).unwrap_or(u32::MAX)),
        Err(_) => Err(format!("failed to parse int from {text}: strconv.Atoi: parsing \"{text}\": invalid syntax")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_are_judged_as_the_real_parser_judges_them() {
        for good in ["* * * * *", "*/5 0-12 1,15 jan-mar MON", "@hourly", "@every 1h30m", "0 0 ? * 0"] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for (bad, why) in [
            ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("@sometimes", "unrecognized descriptor: @sometimes"),
            ("x * * * *", "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax"),
        ] {
            assert_eq!(check(bad), Err(why.to_owned()), "{bad}");
        }
    }
}
