use std::os::unix::net::UnixListener;
use std::thread;

use super::*;

const GREETING: &[u8] = b"{\"QMP\": {\"version\": {}, \"capabilities\": []}}\r\n";
const ANSWER: &[u8] = b"{\"return\": {}}\r\n{\"event\": \"X\", \"data\": \"diskproof\"}\r\n\
    {\"return\": [{\"stats\": {\"flush_operations\": 3, \"flush_total_time_ns\": 500}}, \
    {\"stats\": {\"flush_operations\": 4, \"wr_bytes\": 1}}], \"id\": \"diskproof\"}\r\n";

const WRONG: &[u8] = b"{\"return\": [{\"stats\": 1}], \"id\": \"diskproof\"}\n";
const REFUSED: &[u8] = b"{\"error\": {}, \"id\": \"diskproof\"}\n";

/// What `ask` makes of a socket of this process that says some words.
fn asked(pid: i32, said: &'static [&'static [u8]]) -> Result<GuestFlushes, Silence> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        for words in said {
            if stream.write_all(words).is_err() {
                return;
            }
        }
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest); // until the client hangs up
    });
    let answer = ask(pid, &path, &mut SocketLists::default());
    drop(UnixStream::connect(&path)); // a server that nobody came to ends as well
    server.join().unwrap();
    answer
}

fn own_pid() -> i32 {
    i32::try_from(std::process::id()).unwrap()
}

#[test]
fn flushes_of_all_disks_are_summed_up() {
    let answer = asked(own_pid(), &[GREETING, ANSWER]);
    assert_eq!(answer, Ok(GuestFlushes { count: 7, nanoseconds: 500 }));
}

#[test]
fn a_server_that_is_no_qemu_is_left() {
    assert_eq!(asked(own_pid(), &[b"220 mail\n"]), Err(Silence::NoAnswer));
    assert_eq!(asked(own_pid(), &[]), Err(Silence::NoAnswer));
    assert_eq!(asked(own_pid(), &[GREETING]), Err(Silence::NoAnswer));
    assert_eq!(asked(own_pid(), &[GREETING, WRONG]), Err(Silence::NoAnswer));
    assert_eq!(asked(own_pid(), &[GREETING, REFUSED]), Err(Silence::NoAnswer));
}

#[test]
fn a_socket_of_another_process_is_not_spoken_to() {
    let parent = rustix::process::getppid().unwrap().as_raw_nonzero().get();
    assert_eq!(asked(parent, &[GREETING, ANSWER]), Err(Silence::NotOurs));
    assert_eq!(
        ask(own_pid(), Path::new("/no/such/socket"), &mut SocketLists::default()),
        Err(Silence::NotOurs)
    );
}

#[test]
fn a_socket_in_use_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let client = UnixStream::connect(&path).unwrap();
    let accepted = listener.accept().unwrap();
    assert_eq!(ask(own_pid(), &path, &mut SocketLists::default()), Err(Silence::InUse));
    drop((client, accepted));
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "nobody came a second time");
}

#[test]
fn lines_of_the_kernels_list_of_sockets() {
    let line = |state: &str, path: &str| {
        format!(
            "Num       RefCount Protocol Flags    Type St Inode Path\n\
            ffff: 00000003 00000000 00000000 0001 {state} 4242 {path}\n"
        )
        .into_bytes()
    };
    assert!(is_in_use(&line("03", "/run/a b"), b"/run/a b"));
    assert!(!is_in_use(&line("01", "/run/a"), b"/run/a"));
    assert!(!is_in_use(&line("03", "/run/a"), b"/run/b"));
    assert!(!is_in_use(&line("03", "/x /run/a"), b"/run/a"));
    assert!(!is_in_use(b"", b"/run/a"));
}

#[test]
fn no_answer_is_too_strange() {
    bolero::check!(name = "qmp").for_each(|line: &[u8]| {
        if let Ok(Some(_)) = parse_answer(line) {
            assert!(contains(line, b"diskproof"));
        }
        let _ = is_in_use(line, b"/a");
    });
}
