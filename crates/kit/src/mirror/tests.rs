//! A mirror knows what was written, what was told late, and what is gone.

use std::sync::Mutex;

use k8s_openapi::api::core::v1::ConfigMap;

use super::*;

fn map(name: &str, uid: &str, version: u64, color: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.namespace = Some("team".into());
    map.metadata.name = Some(name.into());
    map.metadata.uid = Some(uid.into());
    map.metadata.resource_version = Some(version.to_string());
    map.metadata.labels = Some([("color".to_owned(), color.to_owned())].into());
    map
}

fn setting() -> (Mirror<ConfigMap>, Index, Arc<Mutex<Vec<String>>>) {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let write = Arc::clone(&heard);
    let mut builder = Mirror::<ConfigMap>::builder().hear(move |change| {
        let what = match change {
            Change::Added(_) => "added",
            Change::Changed(..) => "changed",
            Change::Removed(_) => "removed",
        };
        write.lock().unwrap().push(format!("{what} {}", change.object().name_any()));
    });
    let color = builder.index(|map| map.labels().get("color").cloned().into_iter().collect());
    (builder.detached(), color, heard)
}

#[test]
fn what_was_written_is_known_before_the_watch_tells_and_is_told_once() {
    let (mirror, color, heard) = setting();
    mirror.saw(map("a", "1", 5, "red"));
    mirror.take(News::Applied(Arc::new(map("a", "1", 5, "red"))));
    mirror.take(News::Applied(Arc::new(map("a", "1", 4, "blue"))));
    assert_eq!(mirror.find(color, "red").len(), 1);
    assert_eq!(*heard.lock().unwrap(), ["added a"]);
}

#[test]
fn an_index_follows_changes() {
    let (mirror, color, _) = setting();
    mirror.saw(map("a", "1", 5, "red"));
    mirror.saw(map("a", "1", 6, "blue"));
    assert!(mirror.find(color, "red").is_empty());
    assert_eq!(mirror.find(color, "blue").len(), 1);
    mirror.lost(&map("a", "1", 6, "blue"));
    assert!(mirror.find(color, "blue").is_empty());
}

#[test]
fn what_a_new_list_does_not_have_is_gone_but_not_what_was_written_meanwhile() {
    let (mirror, _, heard) = setting();
    mirror.saw(map("old", "1", 1, "red"));
    mirror.saw(map("stays", "2", 2, "red"));
    mirror.take(News::Begin);
    mirror.take(News::Listed(Arc::new(map("stays", "2", 2, "red"))));
    mirror.saw(map("written", "3", 9, "red"));
    mirror.take(News::Complete);
    let names: Vec<String> = mirror.all().iter().map(|map| map.name_any()).collect();
    assert_eq!(names, ["stays", "written"]);
    assert_eq!(heard.lock().unwrap().last().unwrap(), "removed old");
}

#[test]
fn the_same_name_with_another_uid_is_another_object() {
    let (mirror, _, heard) = setting();
    mirror.saw(map("a", "1", 1, "red"));
    mirror.take(News::Applied(Arc::new(map("a", "2", 7, "red"))));
    mirror.take(News::Deleted(Arc::new(map("a", "1", 6, "red"))));
    assert_eq!(mirror.len(), 1);
    assert_eq!(*heard.lock().unwrap(), ["added a", "removed a", "added a"]);
}
