//! The `JSONPath` of printer columns: `.status.conditions[?(@.type=="Ready")].status`.
//!
//! The dialect is kubectl's: fields with `\.` for a dot in a name, `['name']`, indices and slices, `*`, `..`, unions and
//! filters that compare with one literal or path. A missing field is no error but no result.

use std::borrow::Cow;

use serde_json::Value;

/// A path that was understood.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath {
    steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    Wildcard,
    Recursive,
    Slice { start: Option<i64>, end: End, step: Option<i64> },
    Union(Vec<Vec<Step>>),
    Filter { left: Vec<Step>, comparison: Option<(String, Vec<Step>)> },
    Literal(Value),
}

/// Where a slice ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    /// `[3]`: after one element.
    One,
    /// `[3:]`: at the end of the list.
    Open,
    /// `[3:5]`.
    At(i64),
}

impl JsonPath {
    /// Reads a path; the error says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        Ok(Self { steps: parse_steps(text)? })
    }

    /// All values the path leads to, or why it cannot be followed in this object.
    pub fn find<'a>(&'a self, object: &'a Value) -> Result<Vec<Cow<'a, Value>>, String> {
        walk(&self.steps, vec![Cow::Borrowed(object)])
    }
}

/// The text of a value in a string column: objects and lists as JSON, floats as Go prints them.
pub(super) fn print(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() => print_float(float),
            _ => number.to_string(),
        },
        other => other.to_string(),
    }
}

fn print_float(float: f64) -> String {
    if float != 0.0 && (float.abs() < 1e-4 || float.abs() >= 1e21) {
        let text = format!("{float:e}");
        let Some((digits, exponent)) = text.split_once('e') else { return text };
        let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |rest| ('-', rest));
        return format!("{digits}e{sign}{exponent:0>2}");
    }
    format!("{float}")
}

fn parse_steps(text: &str) -> Result<Vec<Step>, String> {
    let mut steps = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if let Some(filter) = rest.strip_prefix("[?(") {
            let (step, after) = parse_filter(filter)?;
            steps.push(step);
            rest = after;
        } else if let Some(after) = rest.strip_prefix("..") {
            if steps.last() == Some(&Step::Recursive) {
                return Err("invalid multiple recursive descent".to_owned());
            }
            steps.push(Step::Recursive);
            rest = after;
            if rest.starts_with(|c: char| c == '_' || c.is_alphanumeric()) {
                rest = parse_field(rest, &mut steps);
            }
        } else {
            let after = &rest[first.len_utf8()..];
            rest = match first {
                ' ' | '@' | '$' => after,
                '.' => parse_field(after, &mut steps),
                '[' => {
                    let (inside, after) = after.split_once(']').ok_or("unterminated array")?;
                    parse_brackets(inside, &mut steps)?;
                    after
                }
                '"' | '\'' => {
                    let (literal, after) = parse_quoted(after, first)?;
                    steps.push(Step::Literal(Value::String(literal)));
                    after
                }
                '+' | '-' | '0'..='9' => parse_number(rest, &mut steps)?,
                c if c == '_' || c.is_alphanumeric() => {
                    let (word, after) = rest.split_at(rest.find(is_terminator).unwrap_or(rest.len()));
                    match word {
                        "true" | "false" => steps.push(Step::Literal(Value::Bool(word == "true"))),
                        other => return Err(format!("unrecognized identifier {other}")),
                    }
                    after
                }
                other => return Err(format!("unrecognized character in action: {other:?}")),
            };
        }
    }
    Ok(steps)
}

fn is_terminator(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}')
}

/// Reads a field name up to the next terminator that no backslash protects; returns what follows.
fn parse_field<'a>(text: &'a str, steps: &mut Vec<Step>) -> &'a str {
    let mut escaped = false;
    let end = text.char_indices().find(|(_, character)| {
        let ends = !escaped && is_terminator(*character);
        escaped = !escaped && *character == '\\';
        ends
    });
    let (name, rest) = text.split_at(end.map_or(text.len(), |(index, _)| index));
    steps.push(if name == "*" { Step::Wildcard } else { Step::Field(name.replace('\\', "")) });
    rest
}

fn parse_brackets(inside: &str, steps: &mut Vec<Step>) -> Result<(), String> {
    if inside.contains(',') {
        let mut union = Vec::new();
        for part in inside.split(',') {
            let mut part_steps = Vec::new();
            parse_one_bracket(part.trim_matches(' '), &mut part_steps)?;
            union.push(part_steps);
        }
        steps.push(Step::Union(union));
        return Ok(());
    }
    parse_one_bracket(inside, steps)
}

fn parse_one_bracket(inside: &str, steps: &mut Vec<Step>) -> Result<(), String> {
    let key = inside.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')).filter(|key| !key.contains('\''));
    if let Some(key) = key {
        // As in kubectl, a quoted key is read like a field: dots in it need a backslash.
        if key.contains('[') {
            return Err(format!("invalid array index {inside}"));
        }
        steps.extend(parse_steps(&format!(".{key}"))?);
        return Ok(());
    }
    let bad = || format!("invalid array index {inside}");
    let number = |text: &str| if text.is_empty() { Ok(None) } else { text.parse().map(Some).map_err(|_| bad()) };
    let parts: Vec<&str> = if inside == "*" { vec!["", ""] } else { inside.split(':').collect() };
    let step = match parts.as_slice() {
        [start] => Step::Slice { start: number(start)?, end: End::One, step: None },
        [start, end] => Step::Slice { start: number(start)?, end: number(end)?.map_or(End::Open, End::At), step: None },
        [start, end, step] => {
            Step::Slice { start: number(start)?, end: number(end)?.map_or(End::Open, End::At), step: number(step)? }
        }
        _ => return Err(bad()),
    };
    steps.push(step);
    Ok(())
}

/// Reads what follows `[?(`.
fn parse_filter(text: &str) -> Result<(Step, &str), String> {
    let mut quote = None;
    let mut closed = false;
    let mut previous = '\0';
    let end = text.char_indices().find(|(_, character)| {
        match (quote, *character) {
            (None, '"' | '\'') => quote = Some(*character),
            (Some(open), found) if found == open && previous != '\\' => closed = true,
            _ => {}
        }
        previous = *character;
        *character == ')' && quote.is_some() == closed
    });
    let (inside, rest) = text.split_at(end.ok_or("unterminated filter")?.0);
    let rest = rest.strip_prefix(")]").ok_or("unclosed array expect ]")?;
    if inside.contains("[?(") {
        return Err("unterminated filter".to_owned());
    }
    let operators = ['!', '<', '>', '='];
    let step = match inside.find(operators) {
        Some(at) if at > 0 => {
            let (left, right) = inside.split_at(at);
            let length = right.find(|c| !operators.contains(&c)).ok_or("filter without a value")?;
            let (operator, right) = right.split_at(length);
            Step::Filter { left: parse_steps(left)?, comparison: Some((operator.to_owned(), parse_steps(right)?)) }
        }
        _ => Step::Filter { left: parse_steps(inside)?, comparison: None },
    };
    Ok((step, rest))
}

fn parse_quoted(text: &str, quote: char) -> Result<(String, &str), String> {
    let mut literal = String::new();
    let mut characters = text.char_indices();
    while let Some((index, character)) = characters.next() {
        match character {
            '\\' => literal.extend(characters.next().map(|(_, escaped)| escaped)),
            c if c == quote => return Ok((literal, &text[index + c.len_utf8()..])),
            other => literal.push(other),
        }
    }
    Err("unterminated quoted string".to_owned())
}

fn parse_number<'a>(text: &'a str, steps: &mut Vec<Step>) -> Result<&'a str, String> {
    let end = text.char_indices().skip(1).find(|(_, c)| *c != '.' && !c.is_ascii_digit());
    let (number, rest) = text.split_at(end.map_or(text.len(), |(index, _)| index));
    let value = number.parse::<i64>().map(Value::from).or_else(|_| number.parse::<f64>().map(Value::from));
    steps.push(Step::Literal(value.map_err(|_| format!("cannot parse number {number}"))?));
    Ok(rest)
}

fn walk<'a>(steps: &'a [Step], start: Vec<Cow<'a, Value>>) -> Result<Vec<Cow<'a, Value>>, String> {
    let mut current = start;
    for step in steps {
        let mut next = Vec::new();
        match step {
            // Numbers and booleans stand for every value so far, a string stands for itself.
            Step::Literal(value) if value.is_string() => next.push(Cow::Borrowed(value)),
            Step::Literal(value) => next.extend(current.iter().map(|_| Cow::Borrowed(value))),
            Step::Union(parts) => {
                for part in parts {
                    next.extend(walk(part, current.clone())?);
                }
            }
            _ => {
                for value in current {
                    // Values of the object are borrowed; only literals of the path are not below it, and nothing is below them.
                    if let Cow::Borrowed(value) = value {
                        follow(step, value, &mut next)?;
                    }
                }
            }
        }
        current = next;
    }
    Ok(current)
}

fn follow<'a>(step: &'a Step, value: &'a Value, next: &mut Vec<Cow<'a, Value>>) -> Result<(), String> {
    match step {
        Step::Field(name) => next.extend(value.as_object().and_then(|map| map.get(name)).map(Cow::Borrowed)),
        Step::Wildcard => next.extend(children(value).map(Cow::Borrowed)),
        Step::Recursive => descend(value, next),
        Step::Slice { start, end, step } => {
            if !value.is_null() {
                next.extend(slice(value, *start, *end, *step)?.map(Cow::Borrowed));
            }
        }
        Step::Filter { left, comparison } => {
            let elements = value.as_array().ok_or("not array or slice and cannot be filtered")?;
            for element in elements {
                if passes(element, left, comparison.as_ref())? {
                    next.push(Cow::Borrowed(element));
                }
            }
        }
        Step::Union(_) | Step::Literal(_) => {}
    }
    Ok(())
}

fn children(value: &Value) -> Box<dyn Iterator<Item = &Value> + '_> {
    match value {
        Value::Array(list) => Box::new(list.iter()),
        Value::Object(map) => Box::new(map.values()),
        _ => Box::new(std::iter::empty()),
    }
}

/// Every object and list at or below a value. As deep as JSON is parsed, which is bounded.
fn descend<'a>(value: &'a Value, next: &mut Vec<Cow<'a, Value>>) {
    let mut pending = vec![value];
    while let Some(value) = pending.pop() {
        let below: Vec<&Value> = children(value).collect();
        if !below.is_empty() {
            next.push(Cow::Borrowed(value));
            pending.extend(below.into_iter().rev());
        }
    }
}

fn slice(
    value: &Value,
    start: Option<i64>,
    end: End,
    step: Option<i64>,
) -> Result<impl Iterator<Item = &Value>, String> {
    let list = value.as_array().ok_or("not array or slice")?;
    let length = i64::try_from(list.len()).unwrap_or(i64::MAX);
    let first = start.unwrap_or(0);
    let first = if first < 0 { first.saturating_add(length) } else { first };
    let end = match end {
        End::One => first.saturating_add(1),
        End::Open => length,
        End::At(end) if end < 0 => end.saturating_add(length),
        End::At(end) => end,
    };
    let out_of_bounds = |index: i64| format!("array index out of bounds: index {index}, length {length}");
    if first != end {
        if first < 0 || first >= length {
            return Err(out_of_bounds(first));
        }
        if end < 0 || end > length {
            return Err(out_of_bounds(end.saturating_sub(1)));
        }
        if first > end {
            return Err(format!("starting index {first} is greater than ending index {end}"));
        }
    }
    let step = usize::try_from(step.unwrap_or(1)).ok().filter(|step| *step > 0).ok_or("step must be > 0")?;
    let skip = usize::try_from(first).unwrap_or_default();
    let take = usize::try_from(end.saturating_sub(first)).unwrap_or_default();
    Ok(list.iter().skip(skip).take(take).step_by(step))
}

fn passes<'a>(
    element: &'a Value,
    left: &'a [Step],
    comparison: Option<&'a (String, Vec<Step>)>,
) -> Result<bool, String> {
    let lefts = walk(left, vec![Cow::Borrowed(element)]);
    let Some((operator, right)) = comparison else {
        return Ok(lefts.is_ok_and(|found| !found.is_empty()));
    };
    let (lefts, rights) = (lefts?, walk(right, vec![Cow::Borrowed(element)])?);
    match (lefts.as_slice(), rights.as_slice()) {
        ([], _) | (_, []) => Ok(false),
        ([left], [right]) => compare(left, operator, right),
        _ => Err("can only compare one element at a time".to_owned()),
    }
}

fn compare(left: &Value, operator: &str, right: &Value) -> Result<bool, String> {
    let order = match (left, right) {
        (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
        (Value::Bool(left), Value::Bool(right)) if matches!(operator, "==" | "!=") => Some(left.cmp(right)),
        (Value::Number(left), Value::Number(right)) if left.is_f64() == right.is_f64() => {
            match (left.as_i64(), right.as_i64()) {
                (Some(left), Some(right)) => Some(left.cmp(&right)),
                _ => left.as_f64().zip(right.as_f64()).and_then(|(left, right)| left.partial_cmp(&right)),
            }
        }
        _ => None,
    };
    let order = order.ok_or("incompatible types for comparison")?;
    match operator {
        "==" => Ok(order.is_eq()),
        "!=" => Ok(order.is_ne()),
        "<" => Ok(order.is_lt()),
        "<=" => Ok(order.is_le()),
        ">" => Ok(order.is_gt()),
        ">=" => Ok(order.is_ge()),
        other => Err(format!("unrecognized filter operator {other}")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn find(path: &str) -> Result<Vec<Value>, String> {
        let object = json!({
            "spec": {"a.b": 1, "list": [{"n": 1, "t": "x"}, {"n": 2, "t": "y"}, {"n": 3}], "none": null},
            "status": {"conditions": [
                {"type": "Ready", "status": "True"}, {"type": "Other (really)", "status": "False"},
            ]},
        });
        let path = JsonPath::parse(path)?;
        path.find(&object).map(|found| found.into_iter().map(Cow::into_owned).collect())
    }

    #[test]
    fn paths_lead_to_values() {
        for (path, expected) in [
            (r".spec.a\.b", json!([1])),
            (r"$.spec['a\.b']", json!([1])),
            (".spec['list'][0].t", json!(["x"])),
            (".spec.list[-1].n", json!([3])),
            (".spec.list[0:2].n", json!([1, 2])),
            (".spec.list[1:].n", json!([2, 3])),
            (".spec.list[::2].n", json!([1, 3])),
            (".spec.list[0,2].n", json!([1, 3])),
            (".spec.list[*].t", json!(["x", "y"])),
            (".spec.list.*", json!([{"n": 1, "t": "x"}, {"n": 2, "t": "y"}, {"n": 3}])),
            (".status.conditions[?(@.type==\"Ready\")].status", json!(["True"])),
            (".status.conditions[?(@.type=='Other (really)')].status", json!(["False"])),
            (".status.conditions[?(@.type!=\"Ready\")].type", json!(["Other (really)"])),
            (".spec.list[?(@.n>=2)].n", json!([2, 3])),
            (".spec.list[?(@.t)].n", json!([1, 2])),
            (
                "..status",
                json!([{"conditions": [
                {"type": "Ready", "status": "True"}, {"type": "Other (really)", "status": "False"},
            ]}, "True", "False"]),
            ),
            (".spec.missing.deeper", json!([])),
            (".spec.none", json!([null])),
        ] {
            assert_eq!(find(path).map(Value::from), Ok(expected), "{path}");
        }
    }

    #[test]
    fn paths_that_make_no_sense_are_errors() {
        for path in
            ["spec", ".spec.list[", ".spec.list[x]", ".a[?(@.b==1]", ".a[?(@.b=='x)]", "#", ".spec.list[7]", ".a....b"]
        {
            assert!(find(path).is_err(), "{path}");
        }
        assert!(find(".spec[0]").is_err());
        assert!(find(".spec.list[?(@.n==\"1\")]").is_err());
    }

    #[test]
    fn values_print_as_go_prints_them() {
        let printed: Vec<String> = [json!(1), json!(1.5), json!(1e21), json!(0.00001), json!(true), json!({"a": [1]})]
            .iter()
            .map(print)
            .collect();
        assert_eq!(printed, ["1", "1.5", "1e+21", "1e-05", "true", "{\"a\":[1]}"]);
    }

    proptest! {
        #[test]
        fn no_path_makes_the_parser_panic(text in any::<String>(), symbols in r#"[.a\[\]?()@*'"\\:,=0-9 $-]{0,24}"#) {
            let object = json!({"a": [{"a": 1}, {"a": "a"}, [1, 2]]});
            for text in [text, symbols] {
                if let Ok(path) = JsonPath::parse(&text) {
                    let _ = path.find(&object);
                }
            }
        }
    }
}
