//! The grammar of the `labelSelector` query parameter, read token by token.
//!
//! `in` and `notin` are operators only where an operator may stand; elsewhere they are ordinary words.

use std::collections::BTreeSet;

use super::{LabelOperator, LabelRequirement, go_quote, qualified_name_errors};

const OPERATORS: &str = "in, notin, =, ==, !=, gt, lt";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    End,
    Word(&'a str),
    Symbol(&'a str),
}

impl<'a> Token<'a> {
    fn text(self) -> &'a str {
        match self {
            Token::End => "",
            Token::Word(text) | Token::Symbol(text) => text,
        }
    }
}

/// Requirements in the order they are written; the error is the text a real server gives.
pub(super) fn parse(text: &str) -> Result<Vec<LabelRequirement>, String> {
    let mut tokens = Tokens { rest: text };
    let mut requirements = Vec::new();
    loop {
        match tokens.peek() {
            Token::End => return Ok(requirements),
            Token::Word(_) | Token::Symbol("!") => {}
            Token::Symbol(other) => {
                return Err(format!("found '{other}', expected: !, identifier, or 'end of string'"));
            }
        }
        requirements.push(requirement(&mut tokens).map_err(|why| format!("unable to parse requirement: {why}"))?);
        match tokens.next() {
            Token::End => return Ok(requirements),
            Token::Symbol(",") => match tokens.peek() {
                Token::Word(_) | Token::Symbol("!") => {}
                other => return Err(format!("found '{}', expected: identifier after ','", other.text())),
            },
            other => return Err(format!("found '{}', expected: ',' or 'end of string'", other.text())),
        }
    }
}

struct Tokens<'a> {
    rest: &'a str,
}

impl<'a> Tokens<'a> {
    fn peek(&self) -> Token<'a> {
        Tokens { rest: self.rest }.next()
    }

    fn next(&mut self) -> Token<'a> {
        let text = self.rest.trim_start_matches([' ', '\t', '\r', '\n']);
        let Some(first) = text.chars().next() else {
            self.rest = "";
            return Token::End;
        };
        // As in the real lexer, a NUL where a token should begin ends the text; directly after a token it only ends that.
        if first == '\0' {
            self.rest = "";
            return Token::End;
        }
        let length = match first {
            '!' | '=' if text[1..].starts_with('=') => 2,
            '!' | '=' | '(' | ')' | ',' | '>' | '<' => 1,
            _ => text.find(is_end_of_word).unwrap_or(text.len()),
        };
        let (token, rest) = text.split_at(length);
        self.rest = rest.strip_prefix('\0').unwrap_or(rest);
        if is_symbol(first) { Token::Symbol(token) } else { Token::Word(token) }
    }
}

fn is_symbol(character: char) -> bool {
    matches!(character, '=' | '!' | '(' | ')' | ',' | '>' | '<')
}

fn is_end_of_word(character: char) -> bool {
    is_symbol(character) || matches!(character, ' ' | '\t' | '\r' | '\n' | '\0')
}

fn requirement(tokens: &mut Tokens<'_>) -> Result<LabelRequirement, String> {
    let mut token = tokens.next();
    let negated = token == Token::Symbol("!");
    if negated {
        token = tokens.next();
    }
    let Token::Word(key) = token else {
        return Err(format!("found '{}', expected: identifier", token.text()));
    };
    let errors = qualified_name_errors(key);
    if !errors.is_empty() {
        return Err(format!("<nil>: Invalid value: {}: {}", go_quote(key), errors.join("; ")));
    }
    if matches!(tokens.peek(), Token::End | Token::Symbol(",")) {
        let operator = if negated { LabelOperator::DoesNotExist } else { LabelOperator::Exists };
        return LabelRequirement::new(key, operator, Vec::new());
    }
    if negated {
        return LabelRequirement::new(key, LabelOperator::DoesNotExist, Vec::new());
    }
    let operator = match tokens.next() {
        Token::Word("in") => LabelOperator::In,
        Token::Word("notin") => LabelOperator::NotIn,
        Token::Symbol("=") => LabelOperator::Equals,
        Token::Symbol("==") => LabelOperator::DoubleEquals,
        Token::Symbol("!=") => LabelOperator::NotEquals,
        Token::Symbol(">") => LabelOperator::GreaterThan,
        Token::Symbol("<") => LabelOperator::LessThan,
        other => return Err(format!("found '{}', expected: {OPERATORS}", other.text())),
    };
    let values = match operator {
        LabelOperator::In | LabelOperator::NotIn => set_of_values(tokens)?,
        _ => vec![exact_value(tokens)?],
    };
    LabelRequirement::new(key, operator, values)
}

/// `(a,b)`, sorted and without doubles; empty places stand for the empty value.
fn set_of_values(tokens: &mut Tokens<'_>) -> Result<Vec<String>, String> {
    match tokens.next() {
        Token::Symbol("(") => {}
        other => return Err(format!("found '{}' expected: '('", other.text())),
    }
    let mut values = BTreeSet::new();
    match tokens.peek() {
        Token::Symbol(")") => {
            values.insert(String::new());
        }
        Token::Word(_) | Token::Symbol(",") => listed_values(tokens, &mut values)?,
        other => return Err(format!("found '{}', expected: ',', ')' or identifier", other.text())),
    }
    // Both ways here stand before the closing parenthesis.
    tokens.next();
    Ok(values.into_iter().collect())
}

fn listed_values(tokens: &mut Tokens<'_>, values: &mut BTreeSet<String>) -> Result<(), String> {
    loop {
        match tokens.next() {
            Token::Word(value) => {
                values.insert(value.to_owned());
                match tokens.peek() {
                    Token::Symbol(",") => {}
                    Token::Symbol(")") => return Ok(()),
                    other => return Err(format!("found '{}', expected: ',' or ')'", other.text())),
                }
            }
            Token::Symbol(",") => {
                if values.is_empty() {
                    values.insert(String::new());
                }
                match tokens.peek() {
                    Token::Symbol(")") => {
                        values.insert(String::new());
                        return Ok(());
                    }
                    Token::Symbol(",") => {
                        tokens.next();
                        values.insert(String::new());
                    }
                    _ => {}
                }
            }
            other => return Err(format!("found '{}', expected: ',', or identifier", other.text())),
        }
    }
}

fn exact_value(tokens: &mut Tokens<'_>) -> Result<String, String> {
    if matches!(tokens.peek(), Token::End | Token::Symbol(",")) {
        return Ok(String::new());
    }
    match tokens.next() {
        Token::Word(value) => Ok(value.to_owned()),
        other => Err(format!("found '{}', expected: identifier", other.text())),
    }
}
