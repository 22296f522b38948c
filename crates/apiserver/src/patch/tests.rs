//! Behaviour that has no fixture: errors, limits and the corners of JSON and merge patch.

use serde_json::{Value, json};

use super::*;

fn patched(current: &Value, operations: &Value) -> Result<Value, (u16, String)> {
    json_patch(current, operations.to_string().as_bytes()).map_err(|e| (e.code, e.message))
}

const REFUSED: &str = "the server rejected our request due to an error in our request";

#[test]
fn json_patch_adds_replaces_removes_moves_copies_and_tests() {
    let current = json!({"a": {"b": [1, 2, 3]}, "c/d~e": "x"});
    let operations = json!([
        {"op": "test", "path": "/a/b/1", "value": 2},
        {"op": "add", "path": "/a/b/-", "value": 4},
        {"op": "add", "path": "/a/b/0", "value": 0},
        {"op": "remove", "path": "/a/b/-1"},
        {"op": "replace", "path": "/c~1d~0e", "value": "y"},
        {"op": "copy", "from": "/a/b", "path": "/copied"},
        {"op": "move", "from": "/c~1d~0e", "path": "/moved"},
    ]);
    assert_eq!(
        patched(&current, &operations),
        Ok(json!({"a": {"b": [0, 1, 2, 3]}, "copied": [0, 1, 2, 3], "moved": "y"}))
    );
}

#[test]
fn json_patch_keeps_the_leniencies_of_the_real_server() {
    let current = json!({"a": {}});
    let lenient = [
        (json!([{"op": "replace", "path": "/a/new", "value": 1}]), json!({"a": {"new": 1}})),
        (json!([{"op": "test", "path": "/missing", "value": null}]), json!({"a": {}})),
        (json!([{"op": "copy", "from": "/missing", "path": "/b"}]), json!({"a": {}, "b": null})),
        (json!([{"op": "add", "path": "prefix/b", "value": 1}]), json!({"a": {}, "b": 1})),
        (json!(null), json!({"a": {}})),
    ];
    for (operations, expected) in lenient {
        assert_eq!(patched(&current, &operations), Ok(expected), "{operations}");
    }
}

#[test]
fn json_patch_that_does_not_apply_is_unprocessable() {
    let current = json!({"a": {"list": [1]}, "n": null});
    for operations in [
        json!([{"op": "test", "path": "/a/list/0", "value": 2}]),
        json!([{"op": "remove", "path": "/nope"}]),
        json!([{"op": "remove", "path": "/a/list/1"}]),
        json!([{"op": "remove", "path": "/a/list/-2"}]),
        json!([{"op": "add", "path": "/a/list/7", "value": 1}]),
        json!([{"op": "add", "path": "/nope/x", "value": 1}]),
        json!([{"op": "add", "path": "/n/x", "value": 1}]),
        json!([{"op": "add", "path": "", "value": {}}]),
        json!([{"op": "replace", "path": "", "value": 3}]),
        json!([{"op": "move", "from": "/a", "path": "/a/b"}]),
        json!([{"op": "explode", "path": "/a"}]),
        json!([{"path": "/a"}]),
        json!([null]),
    ] {
        assert_eq!(patched(&current, &operations), Err((422, REFUSED.to_owned())), "{operations}");
    }
}

#[test]
fn json_patch_that_is_no_list_of_operations_is_a_bad_request() {
    let current = json!({});
    let answer = |body: &str| json_patch(&current, body.as_bytes()).map_err(|e| (e.code, e.reason, e.message));
    let bad = |why: &str| Err((400, "BadRequest", format!("error decoding patch: {why}")));
    assert_eq!(answer("{}"), bad("json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"));
    assert_eq!(
        answer(r#"[{"op": 3}]"#),
        bad("json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string")
    );
    assert!(matches!(answer("[{"), Err((400, "BadRequest", _))));
}

#[test]
fn json_patch_takes_ten_thousand_operations_and_no_more() {
    let patch = |count: usize| Value::Array(vec![json!({"op": "test", "path": "/a", "value": 1}); count]);
    let current = json!({"a": 1});
    assert_eq!(patched(&current, &patch(10_000)), Ok(current.clone()));
    let message = "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001";
    assert_eq!(patched(&current, &patch(10_001)), Err((413, message.to_owned())));
}

#[test]
fn json_patch_cannot_build_depth_or_size_without_bound() {
    let nest = [
        json!({"op": "add", "path": "/t", "value": {}}),
        json!({"op": "move", "from": "/x", "path": "/t/x"}),
        json!({"op": "move", "from": "/t", "path": "/x"}),
    ];
    let repeated = |times: usize| Value::Array(nest.iter().cloned().cycle().take(times * 3).collect());
    assert!(patched(&json!({"x": {}}), &repeated(100)).is_ok());
    assert_eq!(patched(&json!({"x": {}}), &repeated(3_000)), Err((422, REFUSED.to_owned())));

    // Moving back and forth adds no depth, however often.
    let shuffle =
        [json!({"op": "move", "from": "/x", "path": "/y/z"}), json!({"op": "move", "from": "/y/z", "path": "/x"})];
    let many = Value::Array(shuffle.iter().cloned().cycle().take(9_000).collect());
    assert!(patched(&json!({"x": {"a": [1]}, "y": {}}), &many).is_ok());

    let double: Value =
        (0..40).map(|i| json!({"op": "copy", "from": "/list", "path": format!("/list/{}", i % 2)})).collect();
    assert_eq!(patched(&json!({"list": [1]}), &double), Err((422, REFUSED.to_owned())));
}

#[test]
fn merge_patch_follows_the_rfc() {
    // Appendix A of RFC 7396, without the cases that are no objects.
    for (current, patch, expected) in [
        (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
        (json!({"a": "b"}), json!({"a": null}), json!({})),
        (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
        (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
        (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
        (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
        (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
        (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        (json!({"a": [1]}), json!({"a": [{"b": null, "c": 1}, null]}), json!({"a": [{"c": 1}, null]})),
    ] {
        assert_eq!(merge_patch(&current, &patch), expected, "{current} + {patch}");
    }
}

#[test]
fn merge_patch_body_must_be_an_object() {
    let answer = |body: &str| merge_patch_document(body.as_bytes()).map_err(|e| (e.code, e.message));
    assert_eq!(answer("{}"), Ok(json!({})));
    assert_eq!(answer("null"), Err((400, "Invalid JSON Patch".to_owned())));
    let message = "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}";
    assert_eq!(answer("[]"), Err((400, message.to_owned())));
}

#[test]
fn numbers_are_printed_as_go_prints_them() {
    assert_eq!(go_text::go_value(&json!({"b": [1, 2.5, null, true], "a": "x"})), "map[a:x b:[1 2.5 <nil> true]]");
    assert_eq!(go_pointer(&json!(12_345_678)), "&{1.2345678e+07}");
    assert_eq!(go_pointer(&json!(100_000)), "&{100000}");
    assert_eq!(go_syntax(&json!("a")), "&value.valueUnstructured{Value:\"a\"}");
}

mod strategic;
