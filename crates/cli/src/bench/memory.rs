//! How much memory a process holds, as the kernel counts it.

/// Resident bytes, or `None` where `/proc` is not there.
pub fn resident_bytes() -> Option<u64> {
    field("self", "VmRSS:")
}

/// Resident bytes of another process.
pub fn resident_bytes_of(process: u32) -> Option<u64> {
    field(&process.to_string(), "VmRSS:")
}

fn field(process: &str, name: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes * 1024)
}
