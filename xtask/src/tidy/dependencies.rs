//! What the programs are made of: one implementation of TLS, and none of the crates that the project decided against.

use crate::{invocation::Invocation, tidy::expect_none};

/// Crates that must not be part of any build, each with the reason.
const BANNED: &[(&str, &str)] = &[
    ("aws-lc-rs", "rustls has one provider, ring: two panic at run time when nobody chooses"),
    ("openssl-sys", "TLS is rustls: no system library to match"),
];

#[test]
fn banned_crates_are_in_no_build() {
    let tree = ["tree", "--workspace", "--edges=normal,build,dev", "--prefix=none", "--format={lib}|{p}", "--locked"];
    let text = Invocation::cargo(tree).output().unwrap();
    let packages = text.lines().filter_map(|line| line.split_once('|')).map(|(_, package)| package);
    let names: Vec<&str> = packages.filter_map(|package| package.split_whitespace().next()).collect();
    assert!(names.contains(&"rustls"), "the list of packages is wrong: it lacks rustls");
    let found = BANNED.iter().filter(|(name, _)| names.contains(name));
    let complaints: Vec<_> =
        found.map(|(name, reason)| format!("`{name}`: {reason}; see `cargo tree -i {name}`")).collect();
    expect_none("no build contains a banned crate", &complaints);
}

#[test]
fn the_embedded_server_and_the_real_one_are_of_one_version() {
    let real = crate::programs::kubernetes_version().unwrap();
    assert_eq!(crate::generate::KUBERNETES_VERSION, format!("v{real}"));
}
