//! A forest of queues as lines with aligned columns.

use super::forest::{Branch, Forest, Row};

/// Which columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// GPUs only.
    Gpus,
    /// CPU cores and memory too.
    All,
}

/// The tree, with a line for each queue and one for each unit at the head.
pub fn text(forest: &Forest, width: Width) -> String {
    let mut lines = vec![head(width)];
    for branch in &forest.queues {
        add(branch, "", "", width, &mut lines);
    }
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let wide: Vec<usize> = (0..columns)
        .map(|column| {
            lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for line in lines {
        let mut row = String::new();
        for (column, cell) in line.iter().enumerate() {
            let pad = wide.get(column).copied().unwrap_or(0).saturating_sub(cell.chars().count());
            row.push_str(cell);
            row.extend(std::iter::repeat_n(' ', pad + 2));
        }
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text
}

fn head(width: Width) -> Vec<String> {
    let mut head = vec!["QUEUE".to_owned(), "PRIORITY".to_owned(), "GROUPS".to_owned()];
    let units: &[&str] = if width == Width::All { &["GPUS", "CPU CORES", "MEMORY"] } else { &["GPUS"] };
    for unit in units {
        head.push(format!("{unit}: HELD"));
        let fixed = (width == Width::All).then_some("FIXED");
        head.extend(fixed.into_iter().chain(["ASKED", "QUOTA", "LIMIT", "WEIGHT"]).map(str::to_owned));
    }
    head.push(String::new());
    head
}

fn add(branch: &Branch, before: &str, below: &str, width: Width, lines: &mut Vec<Vec<String>>) {
    let mut line = vec![format!("{before}{}", branch.name), branch.priority.to_string()];
    line.push(branch.groups.map_or_else(|| "?".to_owned(), |groups| groups.to_string()));
    let by_memory = branch.requested_gpu_memory;
    let asked = match (branch.gpu.requested, by_memory) {
        (gpus, 0.0) => plain(gpus),
        (0.0, mib) => format!("{} MiB", plain(mib)),
        (gpus, mib) => format!("{} + {} MiB", plain(gpus), plain(mib)),
    };
    row(&branch.gpu, asked, plain, width, &mut line);
    if width == Width::All {
        row(&branch.cpu, plain(branch.cpu.requested), plain, width, &mut line);
        row(&branch.memory, bytes(branch.memory.requested), bytes, width, &mut line);
    }
    line.push(branch.orphan.as_ref().map_or_else(String::new, |why| format!("! {why}")));
    lines.push(line);
    for (index, child) in branch.children.iter().enumerate() {
        let last = index + 1 == branch.children.len();
        let (own, next) = if last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        add(child, &format!("{below}{own}"), &format!("{below}{next}"), width, lines);
    }
}

fn row(row: &Row, asked: String, shown: fn(f64) -> String, width: Width, line: &mut Vec<String>) {
    let bound = |number: f64| if number < 0.0 { "unlimited".to_owned() } else { shown(number) };
    line.push(shown(row.allocated));
    if width == Width::All {
        line.push(shown(row.allocated_non_preemptible));
    }
    line.extend([asked, bound(row.quota), bound(row.limit), plain(row.over_quota_weight)]);
}

/// At most three digits after the point.
fn plain(number: f64) -> String {
    let text = format!("{number:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn bytes(number: f64) -> String {
    if number < 1e6 {
        return plain(number);
    }
    let (unit, name) = if number < 1e9 { (1e6, "MB") } else { (1e9, "GB") };
    format!("{} {name}", plain(number / unit))
}
