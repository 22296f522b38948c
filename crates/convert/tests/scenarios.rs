//! Scenario files from the outside: found, run, compared and reported.

use std::{fs, path::Path};

use kai_convert::scenario::{Explain, Report, run};

fn write(directory: &Path, name: &str, text: &str) {
    let path = directory.join(name);
    fs::create_dir_all(path.parent().expect("a parent")).expect("make the directory");
    fs::write(path, text).expect("write the scenario");
}

fn report(files: &[(&str, &str)], explain: Explain) -> Report {
    let directory = tempfile::tempdir().expect("a directory");
    for (name, text) in files {
        write(directory.path(), name, text);
    }
    run(&[directory.path().to_owned()], explain)
}

const GANG: &str = "
name: a gang is placed whole or not at all
short:
  nodes: {n0: {gpus: 1}, n1: {gpus: 2}}
  queues: {q: {quota: 4}}
  jobs:
    - {name: wide, queue: q, pods: 4, gpu: 1}
    - {name: narrow, queue: q, pods: 2, gpu: 1}
expect:
  pods:
    wide-0: {status: Pending}
    narrow-0: {status: Running}
    narrow-1: {status: Running}
  podGroups: {wide: {gpusRequested: 4}}
  reasons: {wide: [GPUs]}
";

#[test]
fn a_scenario_that_holds_passes() {
    let report = report(&[("gang/whole.yaml", GANG)], Explain::No);
    assert_eq!((report.passed, report.failed), (1, 0), "{}", report.text());
    assert_eq!(report.cases[0].area, "gang");
    assert!(report.text().contains("gang"));
}

#[test]
fn a_scenario_that_does_not_hold_says_what_came_instead() {
    let wrong = GANG.replace("wide-0: {status: Pending}", "wide-0: {status: Running, node: n9}");
    let report = report(&[("gang/whole.yaml", &wrong)], Explain::No);
    assert_eq!(report.failed, 1);
    let failure = &report.cases[0].failures[0];
    assert_eq!(failure, "pod default/wide-0: expected Running on n9, got Pending");
}

#[test]
fn limits_hold_for_each_cycle() {
    let bounded = format!("{GANG}  limits: {{maxBinds: 1}}\n");
    let report = report(&[("gang/whole.yaml", &bounded)], Explain::No);
    assert_eq!(report.cases[0].failures, ["cycle 1: expected at most 1 binds, got 2"]);
}

#[test]
fn a_broken_file_fails_alone_and_names_the_field() {
    let files = [
        ("a/good.yaml", GANG),
        ("a/unknown-key.yaml", "name: x\nexpect: {podz: {}}\n"),
        ("a/not-yaml.yaml", "{"),
        ("a/not-an-object.json", "[]"),
        ("b/no-action.yaml", "name: x\nkind: single-action\nexpect: {}\n"),
        (
            "b/misspelt.yaml",
            "name: x\nobjects: [{apiVersion: v2, kind: podgroup, metadata: {name: p}}]\nexpect: {verdicts: [p]}\n",
        ),
        (
            "b/twice.yaml",
            "name: x\nobjects: [{apiVersion: v1, kind: Node, metadata: {name: node}}, {apiVersion: v1, kind: Node, metadata: {name: node}}]\nexpect: {verdicts: [node]}\n",
        ),
        ("b/says-nothing.yaml", "name: x\nexpect: {}\n"),
        ("b/ignored.txt", "nothing"),
    ];
    let report = report(&files, Explain::No);
    assert_eq!((report.passed, report.failed), (1, 7), "{}", report.text());
    let failure = |name: &str| {
        let case = report.cases.iter().find(|case| case.file.contains(name)).expect("listed");
        case.failures.join(" ")
    };
    assert!(failure("unknown-key").contains("`expect.podz`") && failure("unknown-key").contains("hint"));
    assert!(failure("no-action").contains("`action`"));
    assert!(failure("misspelt").contains("`objects[0]`"), "{}", failure("misspelt"));
    assert!(failure("misspelt").contains("`apiVersion: scheduling.run.ai/v2alpha2` and `kind: PodGroup`"));
    assert!(failure("twice").contains("`objects[1]`: Node `node` is there twice"), "{}", failure("twice"));
    assert!(failure("says-nothing").contains("whatever happens would pass"));
    assert!(failure("not-yaml").contains("not-yaml.yaml"));
}

/// An object that nothing can be made of is a verdict on that object alone, as in a cluster.
#[test]
fn an_object_that_cannot_be_read_is_left_out_and_told() {
    let object = "objects: [{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: 5}]\n";
    let told = format!("{GANG}  verdicts: [Pod `p`]\n{object}");
    let wrong = format!("{GANG}  nodes: {{n9: {{idleGpus: 1}}}}\n{object}");
    let report = report(&[("a/told.yaml", &told), ("b/wrong.yaml", &wrong)], Explain::No);
    assert_eq!((report.passed, report.failed), (1, 1), "{}", report.text());
    let failures = &report.cases[1].failures;
    assert!(failures.last().is_some_and(|last| last.starts_with("left out: Pod `p`: ")), "{failures:?}");
}

#[test]
fn what_cannot_be_expressed_is_skipped_and_counted() {
    let skipped = format!("{GANG}expressible: false\n");
    let report = report(&[("gang/whole.yaml", &skipped)], Explain::No);
    assert_eq!((report.passed, report.failed, report.skipped), (0, 0, 1));
    assert!(report.text().contains("1 skipped"));
}

#[test]
fn the_json_has_exactly_the_agreed_fields() {
    let report = report(&[("gang/whole.yaml", GANG)], Explain::No);
    let json = serde_json::to_value(&report).expect("serialisable");
    let fields = |value: &serde_json::Value| value.as_object().expect("an object").keys().cloned().collect::<Vec<_>>();
    assert_eq!(fields(&json), ["cases", "failed", "passed"]);
    assert_eq!(fields(&json["cases"][0]), ["area", "failures", "file", "name", "passed"]);
}

#[test]
fn explaining_tells_decisions_and_reasons_of_each_cycle() {
    let text = report(&[("gang/whole.yaml", GANG)], Explain::Yes).text();
    assert!(text.contains("cycle 1") && text.contains("bind default/narrow-0 to"), "{text}");
    assert!(text.contains("default/wide waits:"), "{text}");
}

#[test]
fn a_path_that_does_not_exist_is_a_failure() {
    let report = run(&["/nowhere/at/all".into()], Explain::No);
    assert_eq!(report.failed, 1);
}

#[test]
fn every_scenario_of_this_repository_holds() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/scenarios");
    let report = run(&[own], Explain::No);
    assert!(report.cases.len() >= 120, "only {} scenarios were found", report.cases.len());
    assert_eq!(report.failed, 0, "{}", report.text());
}

#[test]
fn a_directory_without_scenarios_is_a_failure_and_not_a_success_of_nothing() {
    let report = report(&[("notes.txt", "nothing to run")], Explain::No);
    assert_eq!((report.passed, report.failed), (0, 1));
    assert!(report.cases[0].failures[0].contains("no scenario (*.yaml, *.yml, *.json) below"), "{}", report.text());
}
