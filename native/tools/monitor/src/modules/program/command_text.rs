//! A command as one text: words between blanks, quoted where a word has blanks. No shell reads it.

/// Err says what is wrong with the text.
pub fn split_words(text: &str) -> Result<Vec<String>, String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match (character, quote) {
            (end, Some(open)) if end == open => quote = None,
            ('\\', None | Some('"')) => {
                let escaped = characters.next().ok_or("it ends in a backslash")?;
                word.get_or_insert_default().push(escaped);
            }
            ('\'' | '"', None) => {
                word.get_or_insert_default();
                quote = Some(character);
            }
            (blank, None) if blank.is_whitespace() => words.extend(word.take()),
            (character, _) => word.get_or_insert_default().push(character),
        }
    }
    if let Some(open) = quote {
        return Err(format!("a quote {open} is not closed"));
    }
    words.extend(word);
    if words.is_empty() {
        return Err("it names no program".to_owned());
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_quotes() {
        assert_eq!(
            split_words("ssh host 'a b' \"c \\\" d\" e\\ f ''").unwrap(),
            ["ssh", "host", "a b", "c \" d", "e f", ""]
        );
        assert_eq!(split_words("  x  ").unwrap(), ["x"]);
        assert_eq!(split_words("a'b'c $HOME;ls|*").unwrap(), ["abc", "$HOME;ls|*"]);
    }

    #[test]
    fn what_is_no_command() {
        for text in ["", "  ", "'a", "a \"b", "a\\"] {
            assert!(split_words(text).is_err(), "{text:?}");
        }
    }
}
