//! Label and field selectors.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn parse(text: &str) -> LabelSelector {
    LabelSelector::parse(text).unwrap()
}

fn label_error(text: &str) -> String {
    let error = LabelSelector::parse(text).unwrap_err();
    assert_eq!((error.code, error.reason), (400, "BadRequest"));
    error.message
}

#[test]
fn every_operator_selects_as_documented() {
    let object = labels(&[("a", "b"), ("tier", "gpu"), ("n", "7"), ("empty", "")]);
    for (selector, expected) in [
        ("", true),
        ("a=b", true),
        ("a==b", true),
        ("a=c", false),
        ("a!=b", false),
        ("missing!=b", true),
        ("tier in (gpu, cpu)", true),
        ("tier notin (gpu)", false),
        ("missing notin (gpu)", true),
        ("missing in (gpu)", false),
        ("a", true),
        ("!a", false),
        ("!missing", true),
        ("n>5", true),
        ("n>7", false),
        ("n<8", true),
        ("tier>5", false),
        ("empty=", true),
        ("empty in ()", true),
        ("a=b,tier=cpu", false),
        (" a = b , tier in ( gpu ) ", true),
    ] {
        assert_eq!(parse(selector).matches(&object), expected, "{selector}");
    }
}

#[test]
fn operators_are_words_where_no_operator_may_stand() {
    assert!(parse("in in (notin)").matches(&labels(&[("in", "notin")])));
    assert!(parse("notin=in").matches(&labels(&[("notin", "in")])));
}

#[test]
fn a_nul_ends_a_word_and_where_a_word_should_begin_the_selector() {
    assert_eq!(parse("b\0,a").to_string(), "a,b");
    assert_eq!(parse("b \0,a").to_string(), "b");
}

#[test]
fn selectors_print_sorted_by_key_with_sorted_values() {
    assert_eq!(parse("z in (b,a),!y,x==1, w , v!=2,u>3").to_string(), "u>3,v!=2,w,x==1,!y,z in (a,b)");
    assert_eq!(parse("a in (,b)").to_string(), "a in (,b)");
}

#[test]
fn refusals_are_worded_as_by_a_real_server() {
    let plain = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
                 character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
                 '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    let value = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
                 start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used \
                 for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
    for (selector, message) in [
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt".to_owned()),
        ("a=b=c", "found '=', expected: ',' or 'end of string'".to_owned()),
        ("a,", "found '', expected: identifier after ','".to_owned()),
        (",a", "found ',', expected: !, identifier, or 'end of string'".to_owned()),
        ("!", "unable to parse requirement: found '', expected: identifier".to_owned()),
        ("a in b", "unable to parse requirement: found 'b' expected: '('".to_owned()),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'".to_owned()),
        ("a in (b,", "unable to parse requirement: found '', expected: ',', or identifier".to_owned()),
        ("a in (=", "unable to parse requirement: found '=', expected: ',', ')' or identifier".to_owned()),
        ("a==(", "unable to parse requirement: found '(', expected: identifier".to_owned()),
        ("!a=b", "found '=', expected: ',' or 'end of string'".to_owned()),
        ("-a=b", format!("unable to parse requirement: <nil>: Invalid value: \"-a\": name part {plain}")),
        ("a=-b", format!("unable to parse requirement: values[0][a]: Invalid value: \"-b\": {value}")),
        (
            "x/y/z",
            format!(
                "unable to parse requirement: <nil>: Invalid value: \"x/y/z\": a qualified name {plain} with an optional \
                 DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ),
        ),
        (
            "n>many",
            "unable to parse requirement: values[0]: Invalid value: \"many\": for 'Gt', 'Lt' operators, the value must \
             be an integer"
                .to_owned(),
        ),
    ] {
        assert_eq!(label_error(selector), message, "{selector}");
    }
}

#[test]
fn selector_objects_select_like_their_text() {
    let selector = LabelSelector::from_value(&json!({
        "matchLabels": {"app": "x"},
        "matchExpressions": [
            {"key": "tier", "operator": "In", "values": ["b", "a"]},
            {"key": "gone", "operator": "DoesNotExist"},
        ],
    }))
    .unwrap();
    assert_eq!(selector.to_string(), "app=x,!gone,tier in (a,b)");
    assert!(selector.matches_object(&json!({"metadata": {"labels": {"app": "x", "tier": "a"}}})));
    assert!(!selector.matches_object(&json!({"metadata": {}})));
}

#[test]
fn a_null_selector_object_selects_nothing_and_an_empty_one_everything() {
    let nothing = LabelSelector::from_value(&Value::Null).unwrap();
    assert!(!nothing.matches(&labels(&[])) && !nothing.is_empty());
    let everything = LabelSelector::from_value(&json!({})).unwrap();
    assert!(everything.matches(&labels(&[("a", "b")])) && everything.is_empty());
}

#[test]
fn selector_objects_with_errors_are_refused() {
    let error = |value: Value| LabelSelector::from_value(&value).unwrap_err().message;
    assert_eq!(
        error(json!({"matchExpressions": [{"key": "a", "operator": "Near"}]})),
        "\"Near\" is not a valid label selector operator"
    );
    assert_eq!(
        error(json!({"matchExpressions": [{"key": "a", "operator": "In"}]})),
        "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty"
    );
}

#[test]
fn field_selectors_compare_values_and_know_escapes() {
    let fields = |field: &str| match field {
        "metadata.name" => Some("x,y=z\\"),
        "status.phase" => Some("Running"),
        _ => None,
    };
    for (selector, expected) in [
        ("", true),
        ("status.phase=Running", true),
        ("status.phase==Running,spec.nodeName=", true),
        ("status.phase!=Running", false),
        ("spec.nodeName!=", false),
        ("spec.nodeName!=a", true),
        (r"metadata.name=x\,y\=z\\", true),
        (",,status.phase=Running,", true),
    ] {
        assert_eq!(FieldSelector::parse(selector).unwrap().matches(fields), expected, "{selector}");
    }
    assert_eq!(FieldSelector::parse("b!=2,metadata.name==x").unwrap().exact("metadata.name"), Some("x"));
    assert_eq!(FieldSelector::parse("metadata.name!=x").unwrap().exact("metadata.name"), None);
}

#[test]
fn bad_field_selectors_are_refused() {
    let error = |text: &str| FieldSelector::parse(text).unwrap_err().message;
    assert_eq!(error("b=1,spec"), "invalid selector: 'b=1,spec'; can't understand 'spec'");
    assert_eq!(error(r"a=\x"), r"invalid field selector: invalid escape sequence: \x");
    assert_eq!(error(r"a=b\"), r"invalid field selector: invalid escape sequence: \");
    assert_eq!(error("a=b=c"), "invalid field selector: unescaped character in value: 61");
}

fn requirement() -> impl Strategy<Value = LabelRequirement> {
    let name = "[a-c]([-._]?[a-c0-2]){0,2}";
    let values = prop::collection::btree_set("([a-c0-2][-._]?[a-c])?", 1..4);
    let operator = prop::sample::select(vec![
        LabelOperator::In,
        LabelOperator::NotIn,
        LabelOperator::Equals,
        LabelOperator::DoubleEquals,
        LabelOperator::NotEquals,
        LabelOperator::Exists,
        LabelOperator::DoesNotExist,
        LabelOperator::GreaterThan,
        LabelOperator::LessThan,
    ]);
    (prop_oneof![name.prop_map(|n| n), "in|notin", "a\\.b/[a-c]"], operator, values, any::<i8>()).prop_map(
        |(key, operator, values, number)| {
            let values: Vec<String> = match operator {
                LabelOperator::In | LabelOperator::NotIn => values.into_iter().collect(),
                LabelOperator::Exists | LabelOperator::DoesNotExist => Vec::new(),
                LabelOperator::GreaterThan | LabelOperator::LessThan => vec![number.unsigned_abs().to_string()],
                _ => values.into_iter().take(1).collect(),
            };
            LabelRequirement::new(&key, operator, values).unwrap()
        },
    )
}

/// The meaning of a requirement, written down without any thought of speed or sharing.
fn obviously_matches(requirement: &LabelRequirement, labels: &BTreeMap<String, String>) -> bool {
    let found = labels.get(requirement.key());
    let number = |text: &String| text.parse::<i64>().ok();
    match requirement.operator() {
        LabelOperator::Exists => found.is_some(),
        LabelOperator::DoesNotExist => found.is_none(),
        LabelOperator::In | LabelOperator::Equals | LabelOperator::DoubleEquals => {
            requirement.values().iter().any(|value| Some(value) == found)
        }
        LabelOperator::NotIn | LabelOperator::NotEquals => {
            requirement.values().iter().all(|value| Some(value) != found)
        }
        LabelOperator::GreaterThan => {
            found.and_then(number).is_some_and(|found| found > number(&requirement.values()[0]).unwrap())
        }
        LabelOperator::LessThan => {
            found.and_then(number).is_some_and(|found| found < number(&requirement.values()[0]).unwrap())
        }
    }
}

proptest! {
    #[test]
    fn what_is_printed_reads_back_the_same(requirements in prop::collection::vec(requirement(), 0..5)) {
        let selector = LabelSelector::from_requirements(requirements);
        prop_assert_eq!(LabelSelector::parse(&selector.to_string()).unwrap(), selector);
    }

    #[test]
    fn matching_agrees_with_its_obvious_twin(
        requirements in prop::collection::vec(requirement(), 0..4),
        labels in prop::collection::btree_map("[a-c]|in|a\\.b/[a-c]", "[a-c0-2]?", 0..5),
    ) {
        let expected = requirements.iter().all(|part| obviously_matches(part, &labels));
        prop_assert_eq!(LabelSelector::from_requirements(requirements).matches(&labels), expected);
    }

    #[test]
    fn field_selectors_print_and_read_back(
        parts in prop::collection::btree_map("[a-z.]{1,6}", (any::<bool>(), "[a-b,=\\\\ é]{0,4}"), 0..4),
    ) {
        let requirements = parts.into_iter().map(|(field, (equal, value))| {
            let operator = if equal { FieldOperator::Equal } else { FieldOperator::NotEqual };
            FieldRequirement { field, operator, value }
        });
        let mut requirements: Vec<_> = requirements.collect();
        requirements.sort_by_key(|part| FieldSelector::from_requirements(vec![part.clone()]).to_string());
        let selector = FieldSelector::from_requirements(requirements);
        prop_assert_eq!(FieldSelector::parse(&selector.to_string()).unwrap(), selector);
    }

    #[test]
    fn no_text_makes_the_parsers_panic(text in any::<String>(), symbols in "[a-b=!(),<> \\\\\\x00in]{0,16}") {
        for text in [text, symbols] {
            if let Ok(selector) = LabelSelector::parse(&text) {
                prop_assert_eq!(LabelSelector::parse(&selector.to_string()).unwrap(), selector);
            }
            let _ = FieldSelector::parse(&text);
        }
    }
}
