//! The tree of queues as it is printed.

use serde_json::{Value, json};

use super::*;

fn queue(name: &str, parent: &str, status: Value) -> Queue {
    let mut spec = json!({"resources": {"gpu": {"quota": 2, "limit": -1, "overQuotaWeight": 1},
        "cpu": {"quota": 1500, "limit": -1, "overQuotaWeight": 1}, "memory": {"quota": 2000, "limit": -1}}});
    if !parent.is_empty() {
        spec["parentQueue"] = json!(parent);
    }
    let object = json!({"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name}, "spec": spec,
        "status": status});
    serde_json::from_value(object).unwrap()
}

fn example() -> Vec<Queue> {
    let held = json!({"allocated": {"nvidia.com/gpu": "1500m", "cpu": "250m", "memory": "1Gi"},
        "requested": {"nvidia.com/gpu": "2", "run.ai/gpu.memory": "30720"}});
    vec![
        queue("top", "", held.clone()),
        queue("team-a", "top", held),
        queue("team-b", "top", json!({})),
        queue("lost", "nowhere", json!({})),
        queue("x", "y", json!({})),
        queue("y", "x", json!({})),
        queue("a-below-x", "x", json!({})),
    ]
}

#[test]
fn the_tree_shows_every_queue_once_with_marks_on_those_in_the_air() {
    let counts = BTreeMap::from([("team-a".to_owned(), 3), ("top".to_owned(), 1)]);
    let forest = Forest::grow(&example(), Some(&counts));
    let text = table::text(&forest, table::Width::Gpus);
    let expected = "\
QUEUE            PRIORITY  GROUPS  GPUS: HELD  ASKED          QUOTA  LIMIT      WEIGHT
top              100       4       1.5         2 + 30720 MiB  2      unlimited  1
├─ team-a        100       3       1.5         2 + 30720 MiB  2      unlimited  1
└─ team-b        100       0       0           0              2      unlimited  1
lost             100       0       0           0              2      unlimited  1       ! parent `nowhere` does not exist
x                100       0       0           0              2      unlimited  1       ! its own ancestor: x -> y -> x
├─ a-below-x     100       0       0           0              2      unlimited  1       ! below `x`
└─ y             100       0       0           0              2      unlimited  1       ! below `x`
";
    let squeeze =
        |text: &str| text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>();
    assert_eq!(squeeze(&text), squeeze(expected), "\n{text}");
}

#[test]
fn one_queue_can_be_asked_for_and_programs_get_everything() {
    let forest = Forest::grow(&example(), None);
    let below = forest.below("team-a").expect("it is there");
    let json = serde_json::to_value(&below).unwrap();
    assert_eq!(json["queues"][0]["gpu"]["allocated"], 1.5);
    assert_eq!(json["queues"][0]["cpu"]["quota"], 1.5);
    assert_eq!(json["queues"][0]["memory"]["quota"], 2e9);
    assert_eq!(json["queues"][0]["allocated"]["memory"], "1Gi");
    assert!(json["queues"][0].get("groups").is_none());
    assert!(forest.below("nobody").is_none());
    let wide = table::text(&below, table::Width::All);
    assert!(wide.contains("0.25") && wide.contains("1.074 GB"), "{wide}");
}

#[tokio::test]
async fn a_cluster_without_our_definitions_is_told_how_to_get_them() {
    let server = kai_apiserver::ApiServer::start(kai_apiserver::Options::new(kai_clock::Clock::real()));
    let client = kai_lab::client::client_for(server.router());
    let error = queues(&client).await.unwrap_err().to_string();
    assert!(error.contains("kai crds | kubectl apply -f -"), "{error}");
}
