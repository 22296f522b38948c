//! Match conditions of webhooks: CEL expressions over `object`, `oldObject` and `request` that decide whether to call at all.
//!
//! One false condition means no call. A condition that cannot be evaluated counts only if none is false; then the webhook's
//! failure policy decides. Programs are compiled once per expression and shared by all configurations that use it.
//!
//! What a condition says depends on nothing but what it reads. Pods of one template are alike in that, so the answer is remembered: running a
//! program costs more than storing the pod.

use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};

use cel::objects::{Key, Map};
use cel::{Context, ExecutionError, Program};
use kube_cel::KubeCelExt;
use parking_lot::Mutex;
use serde_json::Value;

/// Compiled expressions kept at most; more than any cluster has, so that nobody can fill the memory.
const PROGRAMS: usize = 1024;

/// Answers of one condition that are remembered, and the longest text that stands for a question.
const ANSWERS: usize = 256;
const LONGEST_QUESTION: usize = 4096;

/// All functions of Kubernetes CEL; registering them is much more work than evaluating.
static FUNCTIONS: LazyLock<Context<'static>> = LazyLock::new(|| Context::default().with_all());

/// Compiled expressions by their text.
#[derive(Debug, Default)]
pub(super) struct Programs {
    by_expression: Mutex<BTreeMap<String, Arc<Condition>>>,
}

/// One expression, compiled; or why it cannot be.
#[derive(Debug)]
pub(super) struct Condition {
    expression: String,
    program: Result<Program, String>,
    /// Of each variable that is read, what is read of it.
    reads: Vec<(Variable, Vec<Path>)>,
    /// What it said, by what it read.
    answers: Mutex<HashMap<Vec<u8>, Result<bool, String>>>,
}

/// What an expression can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variable {
    Object,
    OldObject,
    Request,
}

impl Variable {
    fn name(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::OldObject => "oldObject",
            Self::Request => "request",
        }
    }
}

/// Names of fields, from the outside to the inside.
type Path = Vec<String>;

/// What the conditions of a webhook say together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Call it.
    Matches,
    /// Do not call it.
    Skips,
    /// Nobody can say; this is why.
    Fails(String),
}

impl Programs {
    /// The compiled form of an expression.
    pub(super) fn compile(&self, expression: &str) -> Arc<Condition> {
        let mut programs = self.by_expression.lock();
        if let Some(known) = programs.get(expression) {
            return Arc::clone(known);
        }
        if programs.len() >= PROGRAMS {
            programs.clear();
        }
        let condition = Arc::new(Condition::compile(expression));
        programs.insert(expression.to_owned(), Arc::clone(&condition));
        condition
    }
}

/// A variable with what it is now, and what is read of it.
struct Question<'a> {
    variable: Variable,
    value: Option<&'a Value>,
    paths: Vec<&'a [String]>,
}

impl Condition {
    fn compile(expression: &str) -> Self {
        // The compiler is not ours; a panic in it is an expression it does not understand.
        let program = catch_unwind(AssertUnwindSafe(|| Program::compile(expression)));
        let program = match program {
            Ok(compiled) => compiled.map_err(|error| format!("compilation failed: {error}")),
            Err(_) => Err("compilation failed: internal error".to_owned()),
        };
        let all = [Variable::Object, Variable::OldObject, Variable::Request];
        let reads = all.into_iter().map(|variable| (variable, paths(expression, variable.name())));
        let reads = reads.filter(|(_, paths)| !paths.is_empty()).collect();
        Self { expression: expression.to_owned(), program, reads, answers: Mutex::default() }
    }

    /// What it says of what it reads: remembered, or found out.
    fn answer(&self, values: &[Question<'_>]) -> Result<bool, String> {
        let mut question = Vec::new();
        for Question { value, paths, .. } in values {
            match value {
                Some(value) => write_part(value, paths, &mut question),
                None => question.push(b'-'),
            }
            question.push(b'\n');
        }
        if let Some(answer) = self.answers.lock().get(&question) {
            return answer.clone();
        }
        let mut context = FUNCTIONS.new_inner_scope();
        for Question { variable, value, paths } in values {
            let value = value.map_or(cel::Value::Null, |value| part(value, paths));
            context.add_variable_from_value(variable.name(), value);
        }
        let answer = self.evaluate(&context);
        if question.len() <= LONGEST_QUESTION {
            let mut answers = self.answers.lock();
            if answers.len() >= ANSWERS {
                answers.clear();
            }
            answers.insert(question, answer.clone());
        }
        answer
    }

    fn evaluate(&self, context: &Context<'_>) -> Result<bool, String> {
        let program = self.program.as_ref().map_err(Clone::clone)?;
        let result = catch_unwind(AssertUnwindSafe(|| program.execute(context)));
        let why = match result {
            Ok(Ok(cel::Value::Bool(result))) => return Ok(result),
            Ok(Ok(_)) => "must evaluate to bool".to_owned(),
            Ok(Err(ExecutionError::NoSuchKey(key))) => format!("no such key: {key}"),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "internal error".to_owned(),
        };
        Err(format!("expression '{}' resulted in error: {why}", self.expression))
    }
}

/// Evaluates all conditions; `request` gives those fields of the request that are read, or all.
pub(super) fn evaluate(
    conditions: &[Arc<Condition>],
    object: Option<&Value>,
    old: Option<&Value>,
    request: impl Fn(Option<&[&str]>) -> Value,
) -> Verdict {
    let mut errors = Vec::new();
    for condition in conditions {
        let asked = condition.reads.iter().find(|(variable, _)| *variable == Variable::Request);
        let request = asked.map(|(_, paths)| {
            let fields: Option<Vec<&str>> = paths.iter().map(|path| path.first().map(String::as_str)).collect();
            request(fields.as_deref())
        });
        let values: Vec<_> = condition
            .reads
            .iter()
            .map(|(variable, paths)| {
                let value = match variable {
                    Variable::Object => object,
                    Variable::OldObject => old,
                    Variable::Request => request.as_ref(),
                };
                Question { variable: *variable, value, paths: paths.iter().map(Vec::as_slice).collect() }
            })
            .collect();
        match condition.answer(&values) {
            Ok(true) => {}
            Ok(false) => return Verdict::Skips,
            Err(why) => errors.push(why),
        }
    }
    match errors.as_slice() {
        [] => Verdict::Matches,
        [one] => Verdict::Fails(one.clone()),
        many => Verdict::Fails(format!("[{}]", many.join(", "))),
    }
}

/// Which fields of a variable an expression may read. Found in its text: what stands in a literal counts too, which only costs time.
fn paths(expression: &str, variable: &str) -> Vec<Path> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut paths = Vec::new();
    for (place, _) in expression.match_indices(variable) {
        let before = &expression[..place];
        let mut rest = &expression[place + variable.len()..];
        // Part of another word, or a field of something else.
        if before.ends_with(is_word) || before.trim_end().ends_with('.') || rest.starts_with(is_word) {
            continue;
        }
        let mut path = Vec::new();
        while let Some(after) = rest.trim_start().strip_prefix('.').map(str::trim_start) {
            let end = after.find(|c| !is_word(c)).unwrap_or(after.len());
            if end == 0 {
                break;
            }
            path.push(after[..end].to_owned());
            rest = &after[end..];
        }
        paths.push(path);
    }
    paths
}

/// What the paths lead to, and nothing else: translating a whole pod costs more than everything that is asked about it.
fn part(value: &Value, paths: &[&[String]]) -> cel::Value {
    let Some(fields) = read_fields(value, paths) else { return to_cel(value) };
    let entries = fields.map(|(key, value, inner)| (Key::String(Arc::new(key.clone())), part(value, &inner)));
    cel::Value::Map(Map { map: Arc::new(entries.collect()) })
}

/// The same as text: equal texts are equal parts.
fn write_part(value: &Value, paths: &[&[String]], text: &mut Vec<u8>) {
    let Some(fields) = read_fields(value, paths) else {
        // Writing JSON into memory cannot fail.
        let _ = serde_json::to_writer(text, value);
        return;
    };
    text.push(b'{');
    for (key, value, inner) in fields {
        let _ = serde_json::to_writer(&mut *text, key);
        write_part(value, &inner, text);
    }
    text.push(b'}');
}

/// The fields of an object to which paths lead, each with what is left of those; `None`: it is read as a whole.
fn read_fields<'a>(
    value: &'a Value,
    paths: &'a [&'a [String]],
) -> Option<impl Iterator<Item = (&'a String, &'a Value, Vec<&'a [String]>)>> {
    let map = value.as_object().filter(|_| paths.iter().all(|path| !path.is_empty()))?;
    Some(map.iter().filter_map(|(key, value)| {
        let inner: Vec<&[String]> = paths
            .iter()
            .filter_map(|path| path.split_first().filter(|(first, _)| *first == key))
            .map(|(_, rest)| rest)
            .collect();
        (!inner.is_empty()).then_some((key, value, inner))
    }))
}

/// JSON as CEL sees it: whole numbers are `int`, keys stay as they are. As deep as JSON is parsed, which is bounded.
fn to_cel(value: &Value) -> cel::Value {
    match value {
        Value::Null => cel::Value::Null,
        Value::Bool(flag) => cel::Value::Bool(*flag),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(integer), _) => cel::Value::Int(integer),
            (None, Some(integer)) => cel::Value::UInt(integer),
            (None, None) => cel::Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => cel::Value::String(Arc::new(text.clone())),
        Value::Array(list) => cel::Value::List(Arc::new(list.iter().map(to_cel).collect())),
        Value::Object(map) => {
            let entries: HashMap<Key, cel::Value> =
                map.iter().map(|(key, value)| (Key::String(Arc::new(key.clone())), to_cel(value))).collect();
            cel::Value::Map(Map { map: Arc::new(entries) })
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn verdict(expressions: &[&str]) -> Verdict {
        let programs = Programs::default();
        let conditions: Vec<Arc<Condition>> = expressions.iter().map(|text| programs.compile(text)).collect();
        let object = json!({
            "metadata": {"namespace": "team", "labels": {"kai.scheduler/queue": "a"}},
            "spec": {"schedulerName": "kai-scheduler", "priority": 3},
        });
        evaluate(&conditions, Some(&object), None, |_| json!({"operation": "CREATE", "userInfo": {"groups": ["g"]}}))
    }

    #[test]
    fn conditions_read_object_old_object_and_request() {
        for expression in [
            "object.spec.schedulerName == 'kai-scheduler'",
            "object.metadata.labels['kai.scheduler/queue'] == 'a'",
            "'kai.scheduler/queue' in object.metadata.labels",
            "object.spec.priority + 1 == 4",
            "object.metadata.namespace == 'team'",
            "oldObject == null",
            "request.operation == 'CREATE' && 'g' in request.userInfo.groups",
            "!has(object.metadata.annotations)",
            "object.spec.schedulerName.startsWith('kai')",
            "!(request.operation == 'DELETE')",
        ] {
            assert_eq!(verdict(&[expression]), Verdict::Matches, "{expression}");
        }
    }

    #[test]
    fn one_false_condition_outweighs_errors() {
        assert_eq!(verdict(&["object.nowhere == 1", "false"]), Verdict::Skips);
        assert_eq!(verdict(&[]), Verdict::Matches);
    }

    #[test]
    fn conditions_that_cannot_be_evaluated_say_why() {
        assert_eq!(
            verdict(&["object.spec.nowhere == 1", "true"]),
            Verdict::Fails("expression 'object.spec.nowhere == 1' resulted in error: no such key: nowhere".to_owned())
        );
        for expression in ["object.spec.(", "1", "nothing.known", "object.spec.schedulerName > 3", "1/0 == 1"] {
            assert!(matches!(verdict(&[expression]), Verdict::Fails(_)), "{expression}");
        }
    }

    #[test]
    fn only_what_is_read_is_translated() {
        let read = |expression, variable| {
            paths(expression, variable).iter().map(|path| path.join("/")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            read("object.spec.schedulerName == 'a' && has(object.metadata.labels)", "object"),
            "spec/schedulerName metadata/labels"
        );
        assert_eq!(read("object . spec . x[0].y == 1", "object"), "spec/x");
        assert_eq!(read("object == null || oldObject.a == 1 || request.object.spec.b == 2", "object"), "");
        assert_eq!(paths("request.object.a == objects.b", "object"), Vec::<Path>::new());
        assert_eq!(paths("object.?spec == 1", "object"), vec![Path::new()]);
        let value = json!({"spec": {"a": 1, "b": 2}, "status": 3});
        let path = ["spec".to_owned(), "a".to_owned()];
        let cel::Value::Map(map) = part(&value, &[&path]) else { panic!("not a map") };
        assert_eq!(map.map.len(), 1);
        assert_eq!(cel::Value::Map(map), to_cel(&json!({"spec": {"a": 1}})));
    }

    #[test]
    fn what_was_said_of_one_object_is_not_said_of_another() {
        let programs = Programs::default();
        let condition = [programs.compile("has(object.metadata.labels) && object.metadata.labels.a == 'x'")];
        let ask = |object: Value| evaluate(&condition, Some(&object), None, |_| Value::Null);
        for _ in 0..2 {
            assert_eq!(ask(json!({"metadata": {"labels": {"a": "x"}}})), Verdict::Matches);
            assert_eq!(ask(json!({"metadata": {"labels": {"a": "y"}}})), Verdict::Skips);
            assert_eq!(ask(json!({"metadata": {"name": "p"}})), Verdict::Skips);
            assert!(matches!(ask(json!({"spec": {}})), Verdict::Fails(_)));
            assert_eq!(ask(json!({"metadata": "labels"})), Verdict::Skips);
            assert!(matches!(ask(json!({"metadata": {"labels": {}}})), Verdict::Fails(_)));
        }
        assert_eq!(condition[0].answers.lock().len(), 6);
        for number in 0..2 * ANSWERS {
            ask(json!({"metadata": {"labels": {"a": number.to_string()}}}));
            assert!(condition[0].answers.lock().len() <= ANSWERS);
        }
    }

    #[test]
    fn of_the_request_only_what_is_read_is_asked_for() {
        let asked = |expression: &str| {
            let asked = Mutex::new(None);
            evaluate(&[Programs::default().compile(expression)], None, None, |fields| {
                *asked.lock() = Some(fields.map(|fields| fields.join(" ")));
                json!({"operation": "CREATE"})
            });
            asked.into_inner()
        };
        assert_eq!(asked("request.operation == 'CREATE'"), Some(Some("operation".to_owned())));
        assert_eq!(asked("request == null"), Some(None));
        assert_eq!(asked("true"), None);
    }

    #[test]
    fn an_expression_is_compiled_once() {
        let programs = Programs::default();
        assert!(Arc::ptr_eq(&programs.compile("true"), &programs.compile("true")));
    }
}
