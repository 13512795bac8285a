//! The values that a profile is written from: symbols, strings and lists, with one writer for all of them.
//! The reader, which the tests check the writer with, takes the same subset and no more.

/// Where the writer starts to break a list into lines.
const LINE_WIDTH: usize = 100;

/// One S-expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expression {
    /// A name or a number: written as it is, so never anything from outside.
    Symbol(String),
    /// Written between quotes.
    Text(String),
    List(Vec<Expression>),
}

pub(super) fn symbol(name: &str) -> Expression {
    Expression::Symbol(name.to_owned())
}

pub(super) fn text(content: impl Into<String>) -> Expression {
    Expression::Text(content.into())
}

/// `(head rest…)`
pub(super) fn form(head: &str, rest: impl IntoIterator<Item = Expression>) -> Expression {
    Expression::List(std::iter::once(symbol(head)).chain(rest).collect())
}

/// `(head "content")`, the form of most filters.
pub(super) fn named(head: &str, content: &str) -> Expression {
    form(head, [text(content)])
}

impl Expression {
    /// Appends the expression, over several lines if one does not hold it.
    pub(super) fn write(&self, indent: usize, out: &mut String) {
        let inline = self.inline();
        match self {
            Self::List(items) if indent + inline.len() > LINE_WIDTH => write_broken(items, indent, out),
            _ => out.push_str(&inline),
        }
    }

    fn inline(&self) -> String {
        match self {
            Self::Symbol(name) => name.clone(),
            Self::Text(content) => quote(content),
            Self::List(items) => {
                let items: Vec<String> = items.iter().map(Self::inline).collect();
                format!("({})", items.join(" "))
            }
        }
    }
}

/// The leading symbols, such as an action and its operations, stay on the first line.
fn write_broken(items: &[Expression], indent: usize, out: &mut String) {
    let symbols = items.iter().take_while(|item| matches!(item, Expression::Symbol(_))).count();
    let (head, rest) = items.split_at(symbols);
    out.push('(');
    let head: Vec<String> = head.iter().map(Expression::inline).collect();
    out.push_str(&head.join(" "));
    for item in rest {
        out.push('\n');
        out.push_str(&" ".repeat(indent + 2));
        item.write(indent + 2, out);
    }
    out.push(')');
}

/// Control characters do not get here: nothing that goes into a text may have them.
fn quote(content: &str) -> String {
    debug_assert!(!content.contains(char::is_control));
    format!("\"{}\"", content.replace('\\', "\\\\").replace('"', "\\\""))
}

/// All expressions of a text, or what is wrong with it.
#[cfg(test)]
pub(super) fn read_all(source: &str) -> Result<Vec<Expression>, String> {
    let mut rest = source;
    let mut all = Vec::new();
    loop {
        rest = skip_blank(rest);
        if rest.is_empty() {
            return Ok(all);
        }
        let (expression, after) = read_one(rest)?;
        all.push(expression);
        rest = after;
    }
}

#[cfg(test)]
fn skip_blank(mut source: &str) -> &str {
    loop {
        source = source.trim_start();
        let Some(comment) = source.strip_prefix(';') else { return source };
        source = comment.split_once('\n').map_or("", |(_, after)| after);
    }
}

#[cfg(test)]
fn read_one(source: &str) -> Result<(Expression, &str), String> {
    if let Some(inside) = source.strip_prefix('"') {
        return read_text(inside);
    }
    let Some(mut rest) = source.strip_prefix('(') else { return read_symbol(source) };
    let mut items = Vec::new();
    loop {
        rest = skip_blank(rest);
        if let Some(after) = rest.strip_prefix(')') {
            return Ok((Expression::List(items), after));
        }
        let (item, after) = read_one(rest)?;
        items.push(item);
        rest = after;
    }
}

#[cfg(test)]
fn read_text(inside: &str) -> Result<(Expression, &str), String> {
    let mut content = String::new();
    let mut characters = inside.char_indices();
    while let Some((position, character)) = characters.next() {
        match character {
            '"' => return Ok((Expression::Text(content), &inside[position + 1..])),
            '\\' => match characters.next() {
                Some((_, escaped @ ('\\' | '"'))) => content.push(escaped),
                other => return Err(format!("an escape that is not written here: {other:?}")),
            },
            plain => content.push(plain),
        }
    }
    Err("a string has no end".to_owned())
}

#[cfg(test)]
fn read_symbol(source: &str) -> Result<(Expression, &str), String> {
    let is_part = |character: char| character.is_ascii_alphanumeric() || "-_*".contains(character);
    let end = source.find(|character| !is_part(character)).unwrap_or(source.len());
    if end == 0 {
        return Err(format!("neither a list, a string nor a symbol: {:?}", source.chars().next()));
    }
    Ok((symbol(&source[..end]), &source[end..]))
}
