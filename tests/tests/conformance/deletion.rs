//! Delete: preconditions, grace, finalizers, propagation, collections, namespaces.

use std::time::Duration;

use anyhow::{Result, ensure};
use kai_tests::harness::Case;
use kai_tests::wait;
use serde_json::{Value, json};

use crate::conformance;
use crate::setting::{Setting, config_map, deployment, pod};

pub const CASES: &[Case] = conformance![
    delete_answers_success_with_the_uid,
    delete_of_a_missing_object_is_404,
    delete_with_another_uid_is_409,
    delete_with_an_old_version_is_409,
    delete_waits_for_finalizers,
    finalizers_cannot_be_added_to_a_dying_object,
    delete_dry_run_deletes_nothing,
    delete_of_an_unplaced_pod_is_immediate,
    delete_of_a_placed_pod_waits_for_the_kubelet,
    delete_with_grace_zero_is_immediate,
    a_second_delete_can_shorten_the_grace,
    delete_collection_takes_a_selector,
    background_deletion_takes_dependents,
    orphan_deletion_leaves_dependents_without_owner,
    foreground_deletion_waits_for_dependents,
    a_dependent_of_a_missing_owner_goes,
    a_dependent_with_another_owner_stays,
    namespace_deletion_empties_and_goes,
    create_in_a_terminating_namespace_is_403,
    delete_takes_options_from_the_query,
    delete_with_bad_options_is_refused,
];

const PATIENCE: Duration = Duration::from_secs(30);

async fn gone(s: &Setting, path: &str) -> Result<()> {
    wait::until(&format!("{path} to be gone"), PATIENCE, async || {
        Ok((s.server.get(path).await?.status == 404).then_some(()))
    })
    .await
}

async fn delete_answers_success_with_the_uid(s: &Setting) -> Result<()> {
    let created = s.server.post(&s.core("configmaps"), &config_map("a")).await?.expect(201)?;
    let answer = s.server.delete(&s.core("configmaps/a"), &Value::Null).await?.expect(200)?;
    answer
        .expect_value("/kind", "Status")?
        .expect_value("/status", "Success")?
        .expect_value("/details/name", "a")?
        .expect_value("/details/kind", "configmaps")?
        .expect_value("/details/uid", created.string("/metadata/uid")?)?;
    s.server.get(&s.core("configmaps/a")).await?.expect(404)?;
    Ok(())
}

async fn delete_of_a_missing_object_is_404(s: &Setting) -> Result<()> {
    s.server.delete(&s.core("configmaps/none"), &Value::Null).await?.expect_failure(404, "NotFound")?;
    Ok(())
}

async fn delete_with_another_uid_is_409(s: &Setting) -> Result<()> {
    s.server.post(&s.core("configmaps"), &config_map("a")).await?.expect(201)?;
    let options = json!({ "preconditions": { "uid": "00000000-0000-0000-0000-000000000001" } });
    s.server.delete(&s.core("configmaps/a"), &options).await?.expect_failure(409, "Conflict")?.expect_message(
        "the UID in the precondition (00000000-0000-0000-0000-000000000001) does not match the UID in record",
    )?;
    s.server.get(&s.core("configmaps/a")).await?.expect(200)?;
    Ok(())
}

async fn delete_with_an_old_version_is_409(s: &Setting) -> Result<()> {
    s.server.post(&s.core("configmaps"), &config_map("a")).await?.expect(201)?;
    let options = json!({ "preconditions": { "resourceVersion": "1" } });
    s.server
        .delete(&s.core("configmaps/a"), &options)
        .await?
        .expect_failure(409, "Conflict")?
        .expect_message("the ResourceVersion in the precondition (1) does not match the ResourceVersion in record")?;
    Ok(())
}

fn with_finalizer(name: &str) -> Value {
    let mut body = config_map(name);
    body["metadata"]["finalizers"] = json!(["example.com/wait"]);
    body
}

async fn delete_waits_for_finalizers(s: &Setting) -> Result<()> {
    let created = s.server.post(&s.core("configmaps"), &with_finalizer("a")).await?.expect(201)?;
    let answer = s
        .server
        .delete(&s.core("configmaps/a"), &Value::Null)
        .await?
        .expect(200)?
        .expect_value("/kind", "ConfigMap")?;
    ensure!(answer.string("/metadata/deletionTimestamp")?.ends_with('Z'));
    ensure!(answer.string("/metadata/resourceVersion")? != created.string("/metadata/resourceVersion")?);
    answer.expect_value("/metadata/deletionGracePeriodSeconds", 0)?;
    let patch = json!({ "metadata": { "finalizers": null } });
    s.server.patch(kai_tests::request::PatchKind::Merge, &s.core("configmaps/a"), &patch).await?.expect(200)?;
    s.server.get(&s.core("configmaps/a")).await?.expect(404)?;
    Ok(())
}

async fn finalizers_cannot_be_added_to_a_dying_object(s: &Setting) -> Result<()> {
    s.server.post(&s.core("configmaps"), &with_finalizer("a")).await?.expect(201)?;
    s.server.delete(&s.core("configmaps/a"), &Value::Null).await?.expect(200)?;
    let patch = json!({ "metadata": { "finalizers": ["example.com/wait", "example.com/more"] } });
    let answer = s
        .server
        .patch(kai_tests::request::PatchKind::Merge, &s.core("configmaps/a"), &patch)
        .await?
        .expect_failure(422, "Invalid")?;
    answer.expect_message("no new finalizers can be added if the object is being deleted")?;
    let patch = json!({ "metadata": { "finalizers": null } });
    s.server.patch(kai_tests::request::PatchKind::Merge, &s.core("configmaps/a"), &patch).await?.expect(200)?;
    Ok(())
}

async fn delete_dry_run_deletes_nothing(s: &Setting) -> Result<()> {
    s.server.post(&s.core("configmaps"), &config_map("a")).await?.expect(201)?;
    s.server.delete(&s.core("configmaps/a"), &json!({ "dryRun": ["All"] })).await?.expect(200)?;
    s.server
        .get(&s.core("configmaps/a"))
        .await?
        .expect(200)?
        .expect_value("/metadata/deletionTimestamp", Value::Null)?;
    Ok(())
}

async fn delete_of_an_unplaced_pod_is_immediate(s: &Setting) -> Result<()> {
    s.server.post(&s.core("pods"), &pod("a")).await?.expect(201)?;
    s.server.delete(&s.core("pods/a"), &Value::Null).await?.expect(200)?.expect_value("/kind", "Pod")?;
    s.server.get(&s.core("pods/a")).await?.expect(404)?;
    Ok(())
}

/// A pod on a node that does not exist: no kubelet will ever finish its deletion.
fn on_a_lost_node(name: &str) -> Value {
    let mut body = pod(name);
    body["spec"]["nodeName"] = json!("lost-node");
    body
}

async fn delete_of_a_placed_pod_waits_for_the_kubelet(s: &Setting) -> Result<()> {
    s.server.post(&s.core("pods"), &on_a_lost_node("a")).await?.expect(201)?;
    let answer = s.server.delete(&s.core("pods/a"), &Value::Null).await?.expect(200)?;
    answer.expect_value("/kind", "Pod")?.expect_value("/metadata/deletionGracePeriodSeconds", 30)?;
    let read = s.server.get(&s.core("pods/a")).await?.expect(200)?;
    ensure!(read.string("/metadata/deletionTimestamp")?.ends_with('Z'));
    s.server.delete(&s.core("pods/a"), &json!({ "gracePeriodSeconds": 0 })).await?.expect(200)?;
    Ok(())
}

async fn delete_with_grace_zero_is_immediate(s: &Setting) -> Result<()> {
    s.server.post(&s.core("pods"), &on_a_lost_node("a")).await?.expect(201)?;
    s.server.delete(&s.core("pods/a"), &json!({ "gracePeriodSeconds": 0 })).await?.expect(200)?;
    s.server.get(&s.core("pods/a")).await?.expect(404)?;
    Ok(())
}

async fn a_second_delete_can_shorten_the_grace(s: &Setting) -> Result<()> {
    s.server.post(&s.core("pods"), &on_a_lost_node("a")).await?.expect(201)?;
    s.server
        .delete(&s.core("pods/a"), &json!({ "gracePeriodSeconds": 60 }))
        .await?
        .expect(200)?
        .expect_value("/metadata/deletionGracePeriodSeconds", 60)?;
    s.server
        .delete(&s.core("pods/a"), &json!({ "gracePeriodSeconds": 10 }))
        .await?
        .expect(200)?
        .expect_value("/metadata/deletionGracePeriodSeconds", 10)?;
    s.server
        .delete(&s.core("pods/a"), &json!({ "gracePeriodSeconds": 50 }))
        .await?
        .expect(200)?
        .expect_value("/metadata/deletionGracePeriodSeconds", 10)?;
    s.server.delete(&s.core("pods/a"), &json!({ "gracePeriodSeconds": 0 })).await?.expect(200)?;
    Ok(())
}

async fn delete_collection_takes_a_selector(s: &Setting) -> Result<()> {
    for (name, colour) in [("a", "red"), ("b", "red"), ("c", "blue")] {
        let mut body = config_map(name);
        body["metadata"]["labels"] = json!({ "colour": colour });
        s.server.post(&s.core("configmaps"), &body).await?.expect(201)?;
    }
    let answer = s.server.delete(&s.core("configmaps?labelSelector=colour%3Dred"), &Value::Null).await?.expect(200)?;
    ensure!(answer.json["items"].as_array().is_some_and(|items| items.len() == 2), "{}", answer.text);
    s.server.get(&s.core("configmaps/a")).await?.expect(404)?;
    s.server.get(&s.core("configmaps/c")).await?.expect(200)?;
    Ok(())
}

/// A config map `child` owned by the config map `owner`.
async fn owner_and_child(s: &Setting, block: bool) -> Result<()> {
    let owner = s.server.post(&s.core("configmaps"), &config_map("owner")).await?.expect(201)?;
    let mut child = config_map("child");
    child["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.string("/metadata/uid")?, "blockOwnerDeletion": block,
    }]);
    s.server.post(&s.core("configmaps"), &child).await?.expect(201)?;
    Ok(())
}

async fn background_deletion_takes_dependents(s: &Setting) -> Result<()> {
    owner_and_child(s, false).await?;
    s.server.delete(&s.core("configmaps/owner"), &json!({ "propagationPolicy": "Background" })).await?.expect(200)?;
    s.server.get(&s.core("configmaps/owner")).await?.expect(404)?;
    gone(s, &s.core("configmaps/child")).await
}

async fn orphan_deletion_leaves_dependents_without_owner(s: &Setting) -> Result<()> {
    owner_and_child(s, false).await?;
    s.server.delete(&s.core("configmaps/owner"), &json!({ "propagationPolicy": "Orphan" })).await?.expect(200)?;
    gone(s, &s.core("configmaps/owner")).await?;
    let child = s.server.get(&s.core("configmaps/child")).await?.expect(200)?;
    child.expect_value("/metadata/ownerReferences", Value::Null)?;
    Ok(())
}

async fn foreground_deletion_waits_for_dependents(s: &Setting) -> Result<()> {
    owner_and_child(s, true).await?;
    let hold = json!({ "metadata": { "finalizers": ["example.com/wait"] } });
    s.server.patch(kai_tests::request::PatchKind::Merge, &s.core("configmaps/child"), &hold).await?.expect(200)?;
    let answer = s
        .server
        .delete(&s.core("configmaps/owner"), &json!({ "propagationPolicy": "Foreground" }))
        .await?
        .expect(200)?;
    answer.expect_value("/metadata/finalizers", json!(["foregroundDeletion"]))?;
    wait::until("the child to be dying", PATIENCE, async || {
        Ok(s.server.get(&s.core("configmaps/child")).await?.json["metadata"]
            .get("deletionTimestamp")
            .is_some()
            .then_some(()))
    })
    .await?;
    s.server.get(&s.core("configmaps/owner")).await?.expect(200)?;
    let release = json!({ "metadata": { "finalizers": null } });
    s.server.patch(kai_tests::request::PatchKind::Merge, &s.core("configmaps/child"), &release).await?.expect(200)?;
    gone(s, &s.core("configmaps/owner")).await
}

async fn a_dependent_of_a_missing_owner_goes(s: &Setting) -> Result<()> {
    let mut child = config_map("child");
    child["metadata"]["ownerReferences"] = json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "never", "uid": "00000000-0000-0000-0000-00000000000a" }]);
    s.server.post(&s.core("configmaps"), &child).await?.expect(201)?;
    gone(s, &s.core("configmaps/child")).await
}

async fn a_dependent_with_another_owner_stays(s: &Setting) -> Result<()> {
    let first = s.server.post(&s.core("configmaps"), &config_map("first")).await?.expect(201)?;
    let second = s.server.post(&s.core("configmaps"), &config_map("second")).await?.expect(201)?;
    let mut child = config_map("child");
    child["metadata"]["ownerReferences"] = json!([
        { "apiVersion": "v1", "kind": "ConfigMap", "name": "first", "uid": first.string("/metadata/uid")? },
        { "apiVersion": "v1", "kind": "ConfigMap", "name": "second", "uid": second.string("/metadata/uid")? },
    ]);
    s.server.post(&s.core("configmaps"), &child).await?.expect(201)?;
    s.server.delete(&s.core("configmaps/first"), &json!({ "propagationPolicy": "Background" })).await?.expect(200)?;
    wait::until("the reference to the gone owner to be dropped", PATIENCE, async || {
        let child = s.server.get(&s.core("configmaps/child")).await?.expect(200)?;
        Ok((child.json["metadata"]["ownerReferences"].as_array().map(Vec::len) == Some(1)).then_some(()))
    })
    .await
}

async fn namespace_deletion_empties_and_goes(s: &Setting) -> Result<()> {
    s.server.post(&s.core("configmaps"), &config_map("a")).await?.expect(201)?;
    s.server.post(&s.group("apps/v1", "deployments"), &deployment("a")).await?.expect(201)?;
    let path = format!("/api/v1/namespaces/{}", s.namespace);
    let answer = s.server.delete(&path, &Value::Null).await?.expect(200)?;
    answer.expect_value("/kind", "Namespace")?.expect_value("/status/phase", "Terminating")?;
    gone(s, &path).await?;
    s.server.get(&s.core("configmaps/a")).await?.expect(404)?;
    Ok(())
}

async fn create_in_a_terminating_namespace_is_403(s: &Setting) -> Result<()> {
    s.server.post(&s.core("configmaps"), &with_finalizer("hold")).await?.expect(201)?;
    s.server.delete(&format!("/api/v1/namespaces/{}", s.namespace), &Value::Null).await?.expect(200)?;
    let answer = s.server.post(&s.core("configmaps"), &config_map("late")).await?.expect_failure(403, "Forbidden")?;
    answer
        .expect_message(&format!(
            "unable to create new content in namespace {} because it is being terminated",
            s.namespace
        ))?
        .expect_value("/details/causes/0/reason", "NamespaceTerminating")?;
    let release = json!({ "metadata": { "finalizers": null } });
    s.server.patch(kai_tests::request::PatchKind::Merge, &s.core("configmaps/hold"), &release).await?.expect(200)?;
    gone(s, &format!("/api/v1/namespaces/{}", s.namespace)).await
}

async fn delete_takes_options_from_the_query(s: &Setting) -> Result<()> {
    s.server.post(&s.core("pods"), &on_a_lost_node("a")).await?.expect(201)?;
    s.server.delete(&s.core("pods/a?gracePeriodSeconds=0"), &Value::Null).await?.expect(200)?;
    s.server.get(&s.core("pods/a")).await?.expect(404)?;
    Ok(())
}

async fn delete_with_bad_options_is_refused(s: &Setting) -> Result<()> {
    s.server.post(&s.core("configmaps"), &config_map("a")).await?.expect(201)?;
    s.server
        .delete(&s.core("configmaps/a"), &json!({ "propagationPolicy": "Sideways" }))
        .await?
        .expect_failure(422, "Invalid")?;
    s.server.delete(&s.core("configmaps/a"), &json!({ "gracePeriodSeconds": -1 })).await?;
    Ok(())
}
