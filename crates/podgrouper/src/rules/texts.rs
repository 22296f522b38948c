//! Words in annotations and warnings.

use crate::owner::Owner;

/// The top owner as other programs read it: a small YAML document.
pub(super) fn top_owner(top: &Owner) -> String {
    let reference = &top.reference;
    let rows = [
        ("group", reference.group()),
        ("kind", &reference.kind),
        ("name", &reference.name),
        ("uid", &top.uid),
        ("version", reference.version()),
    ];
    rows.iter().fold(String::new(), |text, (key, value)| text + key + ": " + &scalar(value) + "\n")
}

/// In quotes if YAML would take it for something else than a text.
fn scalar(value: &str) -> String {
    let special = ["true", "false", "null", "yes", "no", "on", "off", "y", "n", ""];
    let looks_like_a_number = value.starts_with(|first: char| first.is_ascii_digit()) && value.parse::<f64>().is_ok();
    if looks_like_a_number || special.contains(&value) { format!("\"{value}\"") } else { value.to_owned() }
}

/// The beginning of what a user wrote.
pub(super) fn short(text: &str) -> String {
    text.chars().take(64).collect()
}

/// Says a thing once.
pub(super) fn once(warnings: &mut Vec<String>, warning: String) {
    if !warnings.contains(&warning) {
        warnings.push(warning);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_look_like_numbers_are_quoted() {
        assert_eq!(
            ["train", "12", "1e3", "true", "", "1-a"].map(scalar),
            ["train", "\"12\"", "\"1e3\"", "\"true\"", "\"\"", "1-a"]
        );
    }
}
