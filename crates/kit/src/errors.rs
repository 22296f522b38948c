//! What an error of the API means for whoever got it.

use kube::{Error, core::Status};

/// What to do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The object is not there (404) or is another one by now (410).
    Gone,
    /// Somebody else wrote first, or a precondition does not hold (409): look again.
    Conflict,
    /// There is such an object already (409, `AlreadyExists`).
    Exists,
    /// The server refuses this request and will refuse it again (400, 403, 405, 413, 415, 422).
    Refused,
    /// The credentials are no longer good (401).
    Unauthorized,
    /// Everything else: overload, timeouts, broken connections. It may or may not have happened.
    Transient,
}

/// What an error means.
#[must_use]
pub fn classify(error: &Error) -> Class {
    match error {
        Error::Api(status) => of_status(status),
        // A body that cannot be written will never be.
        Error::SerdeError(_) | Error::BuildRequest(_) | Error::HttpError(_) => Class::Refused,
        _ => Class::Transient,
    }
}

fn of_status(status: &Status) -> Class {
    match status.code {
        404 | 410 => Class::Gone,
        409 if status.reason == "AlreadyExists" => Class::Exists,
        409 => Class::Conflict,
        401 => Class::Unauthorized,
        400 | 403 | 405 | 413 | 415 | 422 => Class::Refused,
        _ => Class::Transient,
    }
}

/// The server's own words about an error, without the client's wrapping.
#[must_use]
pub fn message(error: &Error) -> String {
    match error {
        Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_judged_by_its_code_and_reason() {
        let class =
            |code: u16, reason: &str| classify(&Error::Api(Box::new(Status::failure("no", reason).with_code(code))));
        assert_eq!(class(404, "NotFound"), Class::Gone);
        assert_eq!(class(409, "AlreadyExists"), Class::Exists);
        assert_eq!(class(409, "Conflict"), Class::Conflict);
        assert_eq!(class(403, "Forbidden"), Class::Refused);
        assert_eq!(class(503, "ServiceUnavailable"), Class::Transient);
        assert_eq!(class(429, "TooManyRequests"), Class::Transient);
    }
}
