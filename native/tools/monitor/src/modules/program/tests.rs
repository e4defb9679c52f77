use std::time::Instant;

use super::*;
use crate::choices::Choices;

const HEADER: &str =
    r#"echo '{"type":"header","protocol":1,"name":"own","columns":[{"name":"a","unit":"1/s"}]}'; "#;

fn open_commands(commands: &[&str]) -> Result<Box<dyn Module>, Refusal> {
    let programs = commands.iter().map(|command| (*command).to_owned()).collect();
    let choices = Choices { programs, delay: 1.0, ..Choices::default() };
    open(&mut Setup { files: &mut Files::new("/"), choices: &choices })
}

/// A shell that runs a script after it has written a header.
fn open_script(script: &str) -> Box<dyn Module> {
    let quoted = format!("{HEADER}{script}").replace('\\', "\\\\").replace('"', "\\\"");
    open_commands(&[&format!("sh -c \"{quoted}\"")]).unwrap_or_else(|refusal| panic!("{refusal:?}"))
}

fn refusal(command: &str) -> String {
    match open_commands(&[command]) {
        Ok(_) => panic!("{command:?} is a module"),
        Err(refusal) => refusal.why,
    }
}

/// The row at a time of our own.
fn look(module: &mut dyn Module, at: f64) -> Vec<f64> {
    let mut row = Vec::new();
    module.sample(&Files::new("/"), Moment { monotonic: at, time: at, span: 1.0 }, &mut row);
    row
}

/// Look, at the same moment, until the row is as wanted; a program needs a while to say something.
fn look_until(module: &mut dyn Module, at: f64, wanted: impl Fn(&[f64]) -> bool) -> Vec<f64> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let row = look(module, at);
        if wanted(&row) {
            return row;
        }
        assert!(Instant::now() < deadline, "it stays {row:?}");
        std::thread::yield_now();
    }
}

#[test]
fn values_are_those_of_the_newest_line() {
    let mut module = open_script(
        r#"echo '{"type":"sample","values":[1]}'; echo '{"type":"sample","values":[2]}'; exec sleep 60"#,
    );
    let names: Vec<_> =
        module.groups()[0].columns.iter().map(|column| column.name.clone()).collect();
    assert_eq!(names, ["own.a", "own.age"]);
    look_until(module.as_mut(), 100.0, |row| row == [2.0, 0.0]);
    assert_eq!(look(module.as_mut(), 101.0), [2.0, 1.0]);
}

#[test]
fn a_program_that_hangs_is_shown_as_silent() {
    let mut module = open_script(r#"echo '{"type":"sample","values":[1]}'; exec sleep 60"#);
    look_until(module.as_mut(), 100.0, |row| row == [1.0, 0.0]);
    let row = look(module.as_mut(), 104.0);
    assert!(row[0].is_nan() && row[1] == 4.0);
}

#[test]
fn a_program_that_dies_does_not_stop_the_monitor_and_leaves_no_zombie() {
    let mut module = open_script(r#"echo '{"type":"sample","values":[1]}'; echo no >&2; exit 3"#);
    let row = look_until(module.as_mut(), 100.0, |row| row[0].is_nan());
    assert_eq!(row.len(), 2);
    assert!(look(module.as_mut(), 101.0)[0].is_nan());
}

#[test]
fn what_is_no_sample_is_passed_over() {
    let mut module = open_script(
        r#"echo '{"type":"sample","values":[1,2]}'; echo hello; head -c 300000 /dev/zero; echo
           echo '{"type":"sample","values":[7]}'; exec sleep 60"#,
    );
    look_until(module.as_mut(), 100.0, |row| row == [7.0, 0.0]);
}

#[test]
fn a_flood_without_an_end_is_bounded() {
    let mut module = open_script("exec cat /dev/zero");
    for second in 0..30 {
        assert!(look(module.as_mut(), f64::from(second))[0].is_nan());
    }
}

#[test]
fn a_header_is_found_however_much_comes_at_once_after_it() {
    let header = r#"{"type":"header","protocol":1,"columns":[{"name":"a","unit":"1/s"}]}"#;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, format!("{header}\n{}", "\0".repeat(1 << 20))).unwrap();
    let opened = open_commands(&[&format!("cat {}", file.path().display())]);
    assert!(opened.is_ok());
}

#[test]
fn what_it_started_ends_with_it() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut module = open_script(&format!(
        "trap '' TERM; sleep 600 & echo $! >{}; echo '{{\"type\":\"sample\",\"values\":[1]}}'; wait",
        file.path().display()
    ));
    look_until(module.as_mut(), 100.0, |row| row[0] == 1.0);
    let pid = std::fs::read_to_string(&file).unwrap();
    assert!(lives(pid.trim()));
    drop(module);
    let deadline = Instant::now() + Duration::from_secs(60);
    while lives(pid.trim()) {
        assert!(Instant::now() < deadline, "it still runs");
        std::thread::yield_now();
    }
}

/// A zombie does not: nobody may be there to take the number of an orphan back.
fn lives(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn a_module_that_cannot_be_used_is_refused_with_the_reason() {
    assert!(refusal("/no/such/program").contains("cannot be started"));
    assert!(refusal("sh -c 'echo hello'").contains("no header"));
    assert!(refusal("sh -c 'echo oh dear >&2; exit 3'").contains("exit status: 3): oh dear"));
    assert!(refusal("cat /dev/zero").contains("more than 64 KiB"));
    assert!(refusal("sh -c 'echo").contains("not closed"));
    let twice = format!("sh -c \"{}sleep 9\"", HEADER.replace('"', "\\\""));
    assert!(
        open_commands(&[&twice, &twice]).is_err_and(|refusal| refusal.what.contains("two modules"))
    );
}
