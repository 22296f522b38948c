//! The `fieldSelector` query parameter: `metadata.name=x,spec.nodeName!=`.
//!
//! Which fields a kind supports is not known here; the caller asks [`FieldSelector::requirements`] and refuses the others.

use std::fmt;

use crate::status::ApiError;

/// Whether a field must have a value or must not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldOperator {
    /// `field=value` or `field==value`.
    Equal,
    /// `field!=value`.
    NotEqual,
}

/// One part of a field selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldRequirement {
    /// Dotted path, such as `spec.nodeName`.
    pub field: String,
    /// The relation asked for.
    pub operator: FieldOperator,
    /// The value, without escapes.
    pub value: String,
}

/// A field selector: every requirement must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    requirements: Vec<FieldRequirement>,
}

impl FieldSelector {
    /// Reads the form of the `fieldSelector` query parameter; the error is a 400.
    pub fn parse(text: &str) -> Result<Self, ApiError> {
        let mut terms = split_terms(text);
        terms.sort_unstable();
        let mut requirements = Vec::new();
        for term in terms.into_iter().filter(|term| !term.is_empty()) {
            let Some((field, operator, value)) = split_term(term) else {
                return Err(ApiError::bad_request(format!("invalid selector: '{text}'; can't understand '{term}'")));
            };
            let value = unescape(value).map_err(ApiError::bad_request)?;
            // `=value` without a field restricts nothing.
            if !(field.is_empty() && value.is_empty()) {
                requirements.push(FieldRequirement { field: field.to_owned(), operator, value });
            }
        }
        Ok(Self { requirements })
    }

    /// A selector of these requirements.
    pub fn from_requirements(requirements: Vec<FieldRequirement>) -> Self {
        Self { requirements }
    }

    /// The parts, sorted by their text.
    pub fn requirements(&self) -> &[FieldRequirement] {
        &self.requirements
    }

    /// Whether every object is selected.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether an object is selected whose fields `value_of` knows; a missing field is the empty string.
    pub fn matches<'a>(&self, value_of: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|part| {
            let equal = value_of(&part.field).unwrap_or_default() == part.value;
            equal == (part.operator == FieldOperator::Equal)
        })
    }

    /// The value a field must have, when the selector says so: how a list of one object is recognised.
    pub fn exact(&self, field: &str) -> Option<&str> {
        let wanted = |part: &&FieldRequirement| part.field == field && part.operator == FieldOperator::Equal;
        self.requirements.iter().find(wanted).map(|part| part.value.as_str())
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, part) in self.requirements.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            let operator = if part.operator == FieldOperator::Equal { "=" } else { "!=" };
            write!(f, "{}{operator}{}", part.field, escape(&part.value))?;
        }
        Ok(())
    }
}

/// Splits at commas that no backslash protects; the backslashes stay.
fn split_terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let mut start = 0;
    let mut escaped = false;
    for (index, character) in text.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                terms.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

fn split_term(term: &str) -> Option<(&str, FieldOperator, &str)> {
    let index = term.char_indices().find(|(index, _)| {
        let rest = &term[*index..];
        rest.starts_with('=') || rest.starts_with("!=")
    })?;
    let (field, rest) = term.split_at(index.0);
    if let Some(value) = rest.strip_prefix("!=") {
        return Some((field, FieldOperator::NotEqual, value));
    }
    let value = rest.strip_prefix("==").or_else(|| rest.strip_prefix('='))?;
    Some((field, FieldOperator::Equal, value))
}

fn unescape(value: &str) -> Result<String, String> {
    let mut plain = String::with_capacity(value.len());
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some(escaped @ ('\\' | ',' | '=')) => plain.push(escaped),
                Some(other) => {
                    return Err(format!("invalid field selector: invalid escape sequence: \\{other}"));
                }
                None => return Err("invalid field selector: invalid escape sequence: \\".to_owned()),
            },
            // The real server prints the number of the character here.
            ',' | '=' => {
                let number = u32::from(character);
                return Err(format!("invalid field selector: unescaped character in value: {number}"));
            }
            other => plain.push(other),
        }
    }
    Ok(plain)
}

fn escape(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for character in value.chars() {
        if matches!(character, '\\' | ',' | '=') {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}
