//! Splits a command into words like a shell, without expanding anything.

/// Returns `None` if a quote is not closed.
pub(crate) fn split(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            character if character.is_whitespace() => words.extend(word.take()),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match characters.next()? {
                        '\'' => break,
                        inside => word.push(inside),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match characters.next()? {
                        '"' => break,
                        '\\' => match characters.next()? {
                            escaped @ ('"' | '\\' | '$' | '`') => word.push(escaped),
                            other => word.extend(['\\', other]),
                        },
                        inside => word.push(inside),
                    }
                }
            }
            '\\' => word.get_or_insert_default().push(characters.next()?),
            character => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_like_a_shell_would() {
        let cases: &[(&str, &[&str])] = &[
            ("npx -y server", &["npx", "-y", "server"]),
            ("  a \t b\n", &["a", "b"]),
            ("a 'b c' \"d e\"f", &["a", "b c", "d ef"]),
            (r#"a\ b "x\"y" "\n" '\'"#, &["a b", "x\"y", "\\n", "\\"]),
            ("run '' \"\"", &["run", "", ""]),
            ("a $HOME ${KEY} *", &["a", "$HOME", "${KEY}", "*"]),
            ("", &[]),
        ];
        for (text, words) in cases {
            assert_eq!(split(text).as_deref().unwrap(), *words, "{text}");
        }
        for unclosed in ["a 'b", "a \"b", "a\\"] {
            assert_eq!(split(unclosed), None, "{unclosed}");
        }
    }
}
