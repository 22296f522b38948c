//! The forms that names and values must have, with the words a real server uses when they have not.
//!
//! Every check gives the list of complaints; an empty list (which allocates nothing) means the text is fine. The character
//! classes are matched by hand: these run on every name, label and key of every write.

use std::net::{Ipv4Addr, Ipv6Addr};

/// What is wrong with a text; empty when nothing is.
pub(crate) type Complaints = Vec<String>;

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const DNS1035: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const QUALIFIED: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";

fn too_long(limit: usize) -> String {
    format!("must be no more than {limit} characters")
}

fn form(what: &str, examples: &[&str], expression: &str) -> String {
    let examples = examples.iter().map(|example| format!("'{example}', ")).collect::<Vec<_>>().join(" or ");
    format!("{what} (e.g. {examples}regex used for validation is '{expression}')")
}

fn is_lower_alphanumeric(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// Begins and ends with `edge`, and everything between is `edge` or one of `inner`.
fn is_word(text: &str, edge: fn(u8) -> bool, inner: &[u8]) -> bool {
    let bytes = text.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(first), Some(last)) => {
            edge(*first) && edge(*last) && bytes.iter().all(|byte| edge(*byte) || inner.contains(byte))
        }
        _ => false,
    }
}

fn has_label_form(text: &str) -> bool {
    is_word(text, is_lower_alphanumeric, b"-")
}

fn has_subdomain_form(text: &str) -> bool {
    text.split('.').all(has_label_form)
}

fn has_qualified_form(text: &str) -> bool {
    is_word(text, |byte| byte.is_ascii_alphanumeric(), b"-_.")
}

/// RFC 1123 label: namespaces, containers, volumes.
pub(crate) fn dns_label(text: &str) -> Complaints {
    let mut complaints = Vec::new();
    if text.len() > 63 {
        complaints.push(too_long(63));
    }
    if !has_label_form(text) {
        complaints.push(if has_subdomain_form(text) {
            "must not contain dots".to_owned()
        } else {
            form(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end \
                 with an alphanumeric character",
                &["my-name", "123-abc"],
                LABEL,
            )
        });
    }
    complaints
}

/// RFC 1123 subdomain: the names of most objects.
pub(crate) fn dns_subdomain(text: &str) -> Complaints {
    let mut complaints = Vec::new();
    if text.len() > 253 {
        complaints.push(too_long(253));
    }
    if !has_subdomain_form(text) {
        complaints.push(form(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and \
             end with an alphanumeric character",
            &["example.com"],
            SUBDOMAIN,
        ));
    }
    complaints
}

/// RFC 1035 label: services.
pub(crate) fn dns1035_label(text: &str) -> Complaints {
    let mut complaints = Vec::new();
    if text.len() > 63 {
        complaints.push(too_long(63));
    }
    if !has_label_form(text) || !text.starts_with(|c: char| c.is_ascii_lowercase()) {
        complaints.push(form(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, \
             and end with an alphanumeric character",
            &["my-name", "abc-123"],
            DNS1035,
        ));
    }
    complaints
}

/// A name that is safe as a segment of a URL path: RBAC objects.
pub(crate) fn path_segment(text: &str) -> Complaints {
    if text == "." || text == ".." {
        return vec![format!("may not be '{text}'")];
    }
    path_segment_prefix(text)
}

/// The beginning of such a name.
pub(crate) fn path_segment_prefix(text: &str) -> Complaints {
    ["/", "%"].iter().filter(|part| text.contains(**part)).map(|part| format!("may not contain '{part}'")).collect()
}

/// Label keys, annotation keys, resource names: an optional DNS subdomain, `/`, a name.
pub(crate) fn qualified_name(text: &str) -> Complaints {
    let what = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
    let examples = &["MyName", "my.name", "123-abc"];
    let mut complaints = Vec::new();
    let name = match text.split_once('/') {
        None => text,
        Some((_, name)) if name.contains('/') => {
            let rule = form(what, examples, QUALIFIED);
            return vec![format!(
                "a qualified name {rule} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
        Some((prefix, name)) => {
            if prefix.is_empty() {
                complaints.push("prefix part must be non-empty".to_owned());
            } else {
                complaints
                    .extend(dns_subdomain(prefix).into_iter().map(|complaint| format!("prefix part {complaint}")));
            }
            name
        }
    };
    if name.is_empty() {
        complaints.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        complaints.push(format!("name part {}", too_long(63)));
    }
    if !has_qualified_form(name) {
        complaints.push(format!("name part {}", form(what, examples, QUALIFIED)));
    }
    complaints
}

/// Values of labels.
pub(crate) fn label_value(text: &str) -> Complaints {
    let mut complaints = Vec::new();
    if text.len() > 63 {
        complaints.push(too_long(63));
    }
    if !text.is_empty() && !has_qualified_form(text) {
        complaints.push(form(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and \
             end with an alphanumeric character",
            &["MyValue", "my_value", "12345"],
            "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
        ));
    }
    complaints
}

/// Keys of config maps and secrets.
pub(crate) fn config_key(text: &str) -> Complaints {
    let mut complaints = Vec::new();
    if text.len() > 253 {
        complaints.push(too_long(253));
    }
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if text.is_empty() || !text.bytes().all(fine) {
        complaints.push(form(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            &["key.name", "KEY_NAME", "key-name"],
            "[-._a-zA-Z0-9]+",
        ));
    }
    match text {
        "." | ".." => complaints.push(format!("must not be '{text}'")),
        _ if text.starts_with("..") => complaints.push("must not start with '..'".to_owned()),
        _ => {}
    }
    complaints
}

/// Names of environment variables.
pub(crate) fn environment_name(text: &str) -> Complaints {
    let printable = |c: char| (' '..='~').contains(&c) && c != '=';
    if text.is_empty() {
        return vec!["environment variable name must be non-empty".to_owned()];
    }
    if text.chars().all(printable) {
        return Vec::new();
    }
    vec!["a valid environment variable name must consist only of printable ASCII characters other than '='".to_owned()]
}

/// Names of ports.
pub(crate) fn port_name(text: &str) -> Complaints {
    let mut complaints = Vec::new();
    if text.len() > 15 {
        complaints.push(too_long(15));
    }
    if text.is_empty() || !text.bytes().all(|byte| is_lower_alphanumeric(byte) || byte == b'-') {
        complaints.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !text.bytes().any(|byte| byte.is_ascii_lowercase()) {
        complaints.push("must contain at least one letter (a-z)".to_owned());
    }
    if text.contains("--") {
        complaints.push("must not contain consecutive hyphens".to_owned());
    }
    if text.starts_with('-') || text.ends_with('-') {
        complaints.push("must not begin or end with a hyphen".to_owned());
    }
    complaints
}

/// Names of HTTP headers.
pub(crate) fn header_name(text: &str) -> Complaints {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        return Vec::new();
    }
    vec![form(
        "a valid HTTP header must consist of alphanumeric characters or '-'",
        &["X-Header-Name"],
        "[-A-Za-z0-9]+",
    )]
}

/// `25%`.
pub(crate) fn percent(text: &str) -> Complaints {
    if percent_value(text).is_some() {
        return Vec::new();
    }
    vec![form("a valid percent string must be a numeric string followed by an ending '%'", &["1%", "93%"], "[0-9]+%")]
}

/// The number in `25%`.
pub(crate) fn percent_value(text: &str) -> Option<i64> {
    let digits = text.strip_suffix('%')?;
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(digits.parse().unwrap_or(i64::MAX))
}

/// 1 to 65535.
pub(crate) fn port_number(port: i64) -> Complaints {
    in_range(port, 1, 65535)
}

/// User and group ids.
pub(crate) fn account_id(id: i64) -> Complaints {
    in_range(id, 0, i64::from(i32::MAX))
}

/// Between two numbers, both included.
pub(crate) fn in_range(number: i64, low: i64, high: i64) -> Complaints {
    if (low..=high).contains(&number) {
        return Vec::new();
    }
    vec![format!("must be between {low} and {high}, inclusive")]
}

/// IPv4 or IPv6 address. Leading zeros in IPv4 parts pass, as in fields of old kinds.
pub(crate) fn ip_address(text: &str) -> Complaints {
    if parse_ipv4(text).is_some() || text.parse::<Ipv6Addr>().is_ok() {
        return Vec::new();
    }
    vec!["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".to_owned()]
}

/// An address that traffic can be sent to.
pub(crate) fn endpoint_address(text: &str) -> Complaints {
    use std::net::IpAddr;
    let address = parse_ipv4(text).map(IpAddr::V4).or_else(|| text.parse().ok().map(IpAddr::V6));
    let Some(address) = address else { return ip_address(text) };
    let (link_local, link_local_multicast) = match address {
        IpAddr::V4(address) => (address.is_link_local(), matches!(address.octets(), [224, 0, 0, _])),
        IpAddr::V6(address) => (address.is_unicast_link_local(), address.segments()[0] & 0xff0f == 0xff02),
    };
    let mut complaints = Vec::new();
    if address.is_unspecified() {
        complaints.push(format!("may not be unspecified ({text})"));
    }
    if address.is_loopback() {
        complaints.push("may not be in the loopback range (127.0.0.0/8, ::1/128)".to_owned());
    }
    if link_local {
        complaints.push("may not be in the link-local range (169.254.0.0/16, fe80::/10)".to_owned());
    }
    if link_local_multicast {
        complaints.push("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)".to_owned());
    }
    complaints
}

/// An IPv4 address, with leading zeros allowed.
pub(crate) fn parse_ipv4(text: &str) -> Option<Ipv4Addr> {
    let mut parts = [0_u8; 4];
    let mut given = text.split('.');
    for part in &mut parts {
        let digits = given.next()?;
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        *part = digits.parse().ok()?;
    }
    given.next().is_none().then(|| Ipv4Addr::from(parts))
}

/// `10.0.0.0/8` and the like.
pub(crate) fn cidr(text: &str) -> Complaints {
    let valid = text.split_once('/').is_some_and(|(address, length)| {
        let length = length.parse::<u8>().ok();
        (parse_ipv4(address).is_some() && length.is_some_and(|length| length <= 32))
            || (address.parse::<Ipv6Addr>().is_ok() && length.is_some_and(|length| length <= 128))
    });
    if valid {
        return Vec::new();
    }
    vec!["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)".to_owned()]
}

/// What `generateName` is checked as: a trailing dash stands for the letters to come.
pub(crate) fn masked_prefix(prefix: &str) -> String {
    match prefix.strip_suffix('-') {
        // the real server cuts two characters and adds one; the form it checks is the same
        Some(rest) if !rest.is_empty() => {
            let mut masked = rest.to_owned();
            masked.pop();
            masked.push('a');
            masked
        }
        _ => prefix.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_judged_as_the_real_server_judges_them() {
        assert!(dns_label("web-1").is_empty());
        assert_eq!(dns_label("a.b"), ["must not contain dots"]);
        assert_eq!(
            dns_label("Web"),
            [
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with \
              an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
              '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
            ]
        );
        assert_eq!(
            dns_subdomain("a..b"),
            [
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and \
              end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
              '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
            ]
        );
        assert!(dns1035_label("1web")[0].starts_with("a DNS-1035 label must consist"));
        assert_eq!(path_segment("a/b"), ["may not contain '/'"]);
        assert!(path_segment("system:node").is_empty());
    }

    #[test]
    fn keys_and_values_are_judged_as_the_real_server_judges_them() {
        assert!(qualified_name("nvidia.com/gpu").is_empty());
        assert_eq!(qualified_name("/x"), ["prefix part must be non-empty"]);
        assert_eq!(qualified_name("a/b/c").len(), 1);
        assert_eq!(qualified_name("").len(), 2);
        assert!(label_value("").is_empty() && label_value("a_b.c").is_empty());
        assert_eq!(label_value("-x").len(), 1);
        assert_eq!(config_key(".."), ["must not be '..'"]);
        assert!(environment_name("MY-VAR.1").is_empty() && !environment_name("a=b").is_empty());
        assert_eq!(port_name("--").len(), 3);
        assert_eq!(percent_value("25%"), Some(25));
        assert_eq!(percent_value("%"), None);
        assert!(cidr("10.0.0.0/8").is_empty() && !cidr("10.0.0.0/33").is_empty());
    }

    #[test]
    fn a_generated_name_may_end_in_a_dash() {
        assert!(dns_subdomain(&masked_prefix("job-")).is_empty());
        assert!(!dns_subdomain(&masked_prefix("-")).is_empty());
    }
}
