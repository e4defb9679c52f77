use std::os::unix::fs::symlink;

use super::*;

/// A folder that looks like /proc, gone at the end.
struct Proc(tempfile::TempDir);

impl Proc {
    fn new() -> Self {
        Proc(tempfile::tempdir().unwrap())
    }

    fn add(&self, pid: i32, program: Option<&str>, comm: &str, arguments: &[&str]) {
        let folder = self.0.path().join(pid.to_string());
        fs::create_dir(&folder).unwrap();
        if let Some(program) = program {
            symlink(program, folder.join("exe")).unwrap();
        } else {
            fs::write(folder.join("exe"), "").unwrap(); // cannot be read as a link: of another user
        }
        fs::write(folder.join("comm"), format!("{comm}\n")).unwrap();
        let text: String = arguments.iter().map(|argument| format!("{argument}\0")).collect();
        fs::write(folder.join("cmdline"), text).unwrap();
        let rest = (0..18).map(|_| "0 ").collect::<String>();
        fs::write(folder.join("stat"), format!("{pid} ({comm}) S {rest}{} 0\n", pid * 10)).unwrap();
    }

    fn names(&self, known: &[&Found]) -> Vec<String> {
        Finder::new().find_new(self.0.path(), known).into_iter().map(|found| found.name).collect()
    }
}

const QEMU: Option<&str> = Some("/usr/bin/qemu-system-x86_64");

#[test]
fn qemus_whatever_they_call_themselves() {
    let proc = Proc::new();
    proc.add(11, QEMU, "qemu-system-x86", &["qemu-system-x86_64", "-name", "web"]);
    proc.add(12, QEMU, "my-guest", &["my-guest", "-name", "db,process=my-guest"]);
    proc.add(13, Some("/usr/libexec/qemu-kvm"), "qemu-kvm", &["qemu-kvm", "-uuid", "1-2"]);
    proc.add(14, Some("/usr/bin/qemu-system-arm (deleted)"), "q", &["q", "-m", "1G"]);
    proc.add(15, None, "qemu-system-x86", &["/usr/bin/qemu-system-x86_64", "-name", "other-user"]);
    assert_eq!(proc.names(&[]), ["web", "db", "1-2", "14", "other-user"]);
}

#[test]
fn what_is_no_guest() {
    let proc = Proc::new();
    proc.add(21, Some("/usr/bin/qemu-img"), "qemu-img", &["qemu-img", "convert"]);
    proc.add(22, Some("/usr/bin/qemu-x86_64"), "qemu-x86_64", &["qemu-x86_64", "ls"]);
    proc.add(23, Some("/bin/sh"), "sh", &["sh", "-c", "qemu-system-x86_64 -name web"]);
    proc.add(24, QEMU, "qemu-system-x86", &["q", "-machine", "none", "-qmp", "stdio"]);
    proc.add(25, None, "qemu-system-x86", &["/usr/bin/vim", "-name", "web"]);
    proc.add(26, QEMU, "qemu-system-x86", &[]);
    fs::create_dir(proc.0.path().join("self")).unwrap();
    fs::create_dir(proc.0.path().join("27")).unwrap();
    assert_eq!(proc.names(&[]), Vec::<String>::new());
}

#[test]
fn two_guests_of_one_name_are_told_apart_and_none_comes_twice() {
    let proc = Proc::new();
    proc.add(31, QEMU, "q", &["q", "-name", "web"]);
    proc.add(32, QEMU, "q", &["q", "-name", "web"]);
    let found = Finder::new().find_new(proc.0.path(), &[]);
    let told: Vec<_> =
        found.iter().map(|each| (each.pid, each.started, each.name.as_str())).collect();
    assert_eq!(told, [(31, 310, "web"), (32, 320, "web-32")]);
    proc.add(33, QEMU, "q", &["q", "-name", "web"]);
    assert_eq!(proc.names(&found.iter().collect::<Vec<_>>()), ["web-33"]);
}

#[test]
fn a_second_look_waits_its_time() {
    let proc = Proc::new();
    let mut finder = Finder::new();
    assert!(finder.find_new(proc.0.path(), &[]).is_empty());
    proc.add(41, QEMU, "q", &["q"]);
    assert!(finder.find_new(proc.0.path(), &[]).is_empty());
    finder.next = Some(Instant::now());
    assert_eq!(finder.find_new(proc.0.path(), &[]).len(), 1);
}
