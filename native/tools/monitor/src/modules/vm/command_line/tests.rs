use proptest::prelude::*;

use super::*;

fn parse(arguments: &[&str]) -> CommandLine {
    let text: Vec<u8> =
        arguments.iter().flat_map(|each| each.bytes().chain(std::iter::once(0))).collect();
    parse_command_line(&text)
}

fn name(arguments: &[&str]) -> Option<String> {
    parse(arguments).name
}

#[test]
fn names_as_people_and_libvirt_write_them() {
    assert_eq!(name(&["q", "-name", "web"]).as_deref(), Some("web"));
    assert_eq!(name(&["q", "-name", "guest=web,debug-threads=on"]).as_deref(), Some("web"));
    assert_eq!(name(&["q", "--name", "web,process=x,debug-threads=on"]).as_deref(), Some("web"));
    assert_eq!(name(&["q", "-name", "debug-threads=on,guest=a,,b"]).as_deref(), Some("a_b"));
    assert_eq!(name(&["q", "-name", "debug-threads=on", "-uuid", "1-2"]).as_deref(), Some("1-2"));
    assert_eq!(name(&["q", "-uuid", "1-2", "-name", "web"]).as_deref(), Some("web"));
    assert_eq!(name(&["q", "-name", ""]), None);
    assert_eq!(name(&["q", "-m", "1G"]), None);
    assert_eq!(name(&["q", "-name"]), None);
}

#[test]
fn a_name_cannot_break_a_terminal_or_a_table() {
    let shown = name(&["q", "-name", "a\x1b[31m\n\"b"]).unwrap();
    assert_eq!(shown, "a_[31m__b");
    assert_eq!(name(&["q", "-name", &"x".repeat(5000)]).unwrap().len(), LONGEST_NAME);
}

#[test]
fn sockets_that_serve_qmp() {
    let sockets = |arguments: &[&str]| parse(arguments).qmp;
    let path = |text: &str| vec![PathBuf::from(text)];
    assert_eq!(sockets(&["q", "-qmp", "unix:/run/a,server=on,wait=off"]), path("/run/a"));
    assert_eq!(sockets(&["q", "-qmp", "unix:a,,b,server,nowait"]), path("a,b"));
    let chardev = "socket,id=c,path=/run/c,server=on,wait=off";
    assert_eq!(
        sockets(&["q", "-mon", "chardev=c,mode=control", "-chardev", chardev]),
        path("/run/c")
    );
    assert_eq!(sockets(&["q", "-chardev", chardev, "-mon", "c,mode=control"]), path("/run/c"));
}

#[test]
fn sockets_that_do_not_serve_qmp() {
    let chardev = ["q", "-chardev", "socket,id=c,path=/run/c,server=on"];
    for others in [
        &["-mon", "chardev=c,mode=readline"][..],
        &["-mon", "chardev=d,mode=control"],
        &["-monitor", "unix:/run/m,server=on"],
        &["-qmp", "unix:/run/client"],
        &["-qmp", "unix:/run/client,server=off"],
        &["-qmp", "tcp:localhost:4444,server=on"],
        &["-qmp", "stdio"],
    ] {
        assert_eq!(parse(&[&chardev, others].concat()).qmp, Vec::<PathBuf>::new(), "{others:?}");
    }
}

#[test]
fn a_qemu_that_is_only_asked_what_it_can_do() {
    for asked in [["-machine", "none"], ["-M", "none,accel=kvm:tcg"], ["-machine", "type=none"]] {
        assert!(parse(&[&["q"], &asked[..]].concat()).no_machine, "{asked:?}");
    }
    assert!(!parse(&["q", "-machine", "q35,accel=tcg"]).no_machine);
}

proptest! {
    #[test]
    fn a_name_comes_back_whatever_surrounds_it(guest in "[a-z0-9 =_-]{1,30}", more in "[a-z=,]{0,30}") {
        let guest = guest.trim().to_owned();
        prop_assume!(!guest.is_empty());
        let escaped = format!("guest={guest},debug-threads=on");
        let found = name(&["q", "-x", &more, "-name", &escaped]);
        prop_assert_eq!(found, Some(guest));
    }
}

#[test]
fn no_command_line_is_too_strange() {
    bolero::check!(name = "command-line").for_each(|text: &[u8]| {
        let found = parse_command_line(text);
        assert!(found.name.is_none_or(|name| {
            name.chars().count() <= LONGEST_NAME && !name.contains(char::is_control)
        }));
    });
}
