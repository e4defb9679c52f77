//! Which operations of a log are one step of the program: those of one kind that one place in it
//! asks for, whose paths differ only in numbers, hashes and the random ends of temporary names.

use std::collections::HashMap;

use crate::operation::{Kind, Operations};
use crate::source_place::SourcePlace;
use crate::trace::Trace;

/// What the operations of one step share: their kind, the patterns of their paths, and the place in
/// the program where that is known.
type Step = (Kind, String, Option<String>, Option<String>);

/// The step of each record, as a number; 0 for what is none.
pub struct Steps {
    of: Vec<u32>,
}

impl Steps {
    pub fn new(trace: &Trace) -> Steps {
        let mut numbers: HashMap<Step, u32> = HashMap::new();
        let mut of = vec![0; trace.events.len()];
        for named in Operations::new(trace) {
            let place = named.by.as_ref().and_then(|by| by.place()).map(SourcePlace::key);
            let to = named.to.as_deref().map(pattern);
            let step = (named.kind, pattern(&named.path), to, place);
            let next = numbers.len() as u32 + 1;
            of[named.sequence as usize - 1] = *numbers.entry(step).or_insert(next);
        }
        Steps { of }
    }

    pub fn of(&self, sequence: u64) -> u32 {
        self.of[sequence as usize - 1]
    }

    /// All records of a step.
    pub fn records(&self, step: u32) -> impl Iterator<Item = u64> + '_ {
        self.of.iter().zip(1..).filter(move |(one, _)| **one == step).map(|(_, record)| record)
    }
}

/// A path with a star or an N for what differs each time.
pub fn pattern(path: &str) -> String {
    path.split('/').map(pattern_of_name).collect::<Vec<_>>().join("/")
}

fn pattern_of_name(name: &str) -> String {
    let hexadecimal =
        |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let has_digit = name.bytes().any(|byte| byte.is_ascii_digit());
    let parts_are_hexadecimal = name.len() >= 32 && name.split('-').all(hexadecimal);
    if parts_are_hexadecimal
        || (hexadecimal(name) && (name.len() == 2 || (name.len() >= 6 && has_digit)))
    {
        return "*".to_owned();
    }
    let end = name.rfind(['_', '.', '-']).map_or(name.len(), |at| at + 1);
    if is_random(&name[end..], &name[..end]) {
        return format!("{}*", without_numbers(&name[..end]));
    }
    without_numbers(name)
}

/// As mkstemp(3) ends a name: six letters and digits; no word, unless what is before says that it
/// is a temporary name.
fn is_random(text: &str, before: &str) -> bool {
    let count = |wanted: fn(&u8) -> bool| text.bytes().filter(wanted).count();
    let is_temporary =
        ["tmp", "temp"].iter().any(|word| before.to_ascii_lowercase().contains(word));
    text.len() == 6
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
        && (is_temporary || count(u8::is_ascii_uppercase) > 1 || count(u8::is_ascii_digit) > 0)
}

fn without_numbers(name: &str) -> String {
    let mut pattern = String::new();
    for letter in name.chars() {
        match letter.is_ascii_digit() {
            false => pattern.push(letter),
            true if pattern.ends_with('#') => {}
            true => pattern.push('#'),
        }
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::pattern;

    #[test]
    fn names_that_differ_by_chance_are_one_step() {
        let same = |one, two| assert_eq!(pattern(one), pattern(two));
        let other = |one, two| assert_ne!(pattern(one), pattern(two));
        same(".git/objects/c8", ".git/objects/1f");
        same(".git/objects/tmp_obj_Xy1aB2", ".git/objects/tmp_obj_QQ0abc");
        same(".git/objects/tmp_obj_nskupy", ".git/objects/tmp_obj_QQ0abc");
        same("db/000003.log", "db/12.log");
        same("a/550e8400-e29b-41d4-a716-446655440000", "a/650e8400-e29b-41d4-a716-446655440001");
        same(
            "a/0123456789abcdef0123456789abcdef01234567",
            "a/1123456789abcdef0123456789abcdef01234567",
        );
        other("conf.tmp", "conf.new");
        other("a.config", "a.master");
        other("alpha", "beta");
        other("d/face", "d/dead");
    }
}
