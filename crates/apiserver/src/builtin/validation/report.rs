//! Collects what is wrong with an object. Text is made only when something is.

use std::fmt::Display;

use serde_json::Value;

use crate::builtin::access::same;
use crate::builtin::field_path::Path;
use crate::builtin::format::Complaints;
use crate::status::FieldError;

const NEGATIVE: &str = "must be greater than or equal to 0";
const IMMUTABLE: &str = "field is immutable";

/// The errors found so far.
#[derive(Default)]
pub(crate) struct Report {
    errors: Vec<FieldError>,
}

impl Report {
    /// All errors, in the order they were found.
    pub(crate) fn into_errors(self) -> Vec<FieldError> {
        self.errors
    }

    /// How many errors there are.
    pub(crate) fn len(&self) -> usize {
        self.errors.len()
    }

    /// Any error.
    pub(crate) fn push(&mut self, error: FieldError) {
        self.errors.push(error);
    }

    /// A value that may not be what it is.
    pub(crate) fn invalid(&mut self, path: Path<'_>, value: impl Into<Value>, why: impl Display) {
        self.errors.push(FieldError::invalid(path, &value.into(), why));
    }

    /// A value that must be there.
    pub(crate) fn required(&mut self, path: Path<'_>, why: &str) {
        self.errors.push(FieldError::required(path, why));
    }

    /// A field that may not be set or changed.
    pub(crate) fn forbidden(&mut self, path: Path<'_>, why: impl Display) {
        self.errors.push(FieldError::forbidden(path, why));
    }

    /// A value used twice.
    pub(crate) fn duplicate(&mut self, path: Path<'_>, value: impl Into<Value>) {
        self.errors.push(FieldError::duplicate(path, &value.into()));
    }

    /// A name that refers to nothing.
    pub(crate) fn not_found(&mut self, path: Path<'_>, value: &str, why: &str) {
        self.errors.push(FieldError::not_found(path, &value.into(), why));
    }

    /// A word outside an enumeration.
    pub(crate) fn unsupported(&mut self, path: Path<'_>, value: &str, supported: &[&str]) {
        self.errors.push(FieldError::not_supported(path, &value.into(), supported));
    }

    /// Complaints about a text.
    pub(crate) fn complain(&mut self, path: Path<'_>, text: &str, complaints: Complaints) {
        for complaint in complaints {
            self.invalid(path, text, complaint);
        }
    }

    /// Complaints about a number.
    pub(crate) fn complain_number(&mut self, path: Path<'_>, number: i64, complaints: Complaints) {
        for complaint in complaints {
            self.invalid(path, number, complaint);
        }
    }

    /// A word of an enumeration, which must be there.
    pub(crate) fn one_of(&mut self, path: Path<'_>, word: &str, supported: &[&str]) {
        if word.is_empty() {
            self.required(path, "");
        } else if !supported.contains(&word) {
            self.unsupported(path, word, supported);
        }
    }

    /// A word of an enumeration, if there is one.
    pub(crate) fn optional_one_of(&mut self, path: Path<'_>, word: &Value, supported: &[&str]) {
        if let Some(word) = word.as_str()
            && !supported.contains(&word)
        {
            self.unsupported(path, word, supported);
        }
    }

    /// A number that may not be negative, if there is one.
    pub(crate) fn nonnegative(&mut self, path: Path<'_>, number: Option<i64>) {
        if let Some(number) = number.filter(|number| *number < 0) {
            self.invalid(path, number, NEGATIVE);
        }
    }

    /// A number that must be above zero.
    pub(crate) fn positive(&mut self, path: Path<'_>, number: i64) {
        if number <= 0 {
            self.invalid(path, number, "must be greater than zero");
        }
    }

    /// A field that an update may not change.
    pub(crate) fn immutable(&mut self, path: Path<'_>, new: &Value, old: &Value) {
        if !same(new, old) {
            self.invalid(path, new.clone(), IMMUTABLE);
        }
    }
}
