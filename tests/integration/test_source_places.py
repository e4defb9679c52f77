"""Where in its program somebody was who changed a recorded folder: real programs, compiled here.

Requires root, /dev/fuse, gcc and the native programs.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

from support.recording import make_places, needs_fuse, start_recording
from support.source_places import compile_program, line_of, of_operation, record

pytestmark = [
    needs_fuse,
    pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc"),
]
CHANGES = """#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

__attribute__((noipa)) static void save(const char *name) {
    int file = open(name, O_WRONLY | O_CREAT, 0644);  // CREATE
    if (write(file, name, strlen(name)) < 0) perror(name);  // WRITE
    close(file);
    asm volatile("");  // no tail call
}

static void *work(void *name) {
    mkdir(name, 0755);  // THREAD
    return NULL;
}

int main(void) {
    save("saved");  // MAIN
    FILE *stream = fopen("stream", "w");
    fputs("text", stream);
    fclose(stream);  // FLUSH
    pthread_t thread;
    pthread_create(&thread, NULL, work, "made");
    pthread_join(thread, NULL);
    rename("saved", "kept");  // RENAME
    return 0;
}
"""
# A large frame, arguments on the stack, a switch, and a stack that moves by what it is told.
FRAMES = """#include <alloca.h>
#include <string.h>
#include <sys/stat.h>

static void make(const char *name, long a, long b, long c, long d, long e, long f, long g) {
    char room[5000];
    memset(room, 0, sizeof room);
    if (a == 77) make(name, b, c, d, e, f, g, room[0]);
    mkdir(name, 0755);
    asm volatile("" : : "r"(room));
}

static void middle(const char *name) {
    make(name, 1, 2, 3, 4, 5, 6, 7);
    asm volatile("");
}

static void moving(int length) {
    char *room = alloca(length);
    memset(room, 0, length);
    middle("moved");
    asm volatile("" : : "r"(room));
}

int main(int count, char **words) {
    middle("plain");
    for (int i = 0; i < 3; i++) switch (i) {
        case 0: middle("first"); break;
        case 1: middle("second"); break;
        default: moving(count * 100);
    }
    return 0;
}
"""
MADE_CODE = """#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void make(void) { mkdir("made", 0755); asm volatile(""); }

int main(void) {
    // sub $8, %rsp; call *%rdi; add $8, %rsp; ret
    static const unsigned char code[] = {
        0x48, 0x83, 0xec, 8, 0xff, 0xd7, 0x48, 0x83, 0xc4, 8, 0xc3
    };
    void *page = mmap(NULL, 4096, 7, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(page, code, sizeof code);
    char map[64];
    snprintf(map, sizeof map, "/tmp/perf-%d.map", getpid());
    FILE *said = fopen(map, "w");
    fprintf(said, "%lx %zx py::store:/srv/app.py\\n", (unsigned long)page, sizeof code);
    fclose(said);
    ((void (*)(void (*)(void)))page)(make);
    puts(map);
    return 0;
}
"""


EXPECTED = [
    ("create", "saved", "save", "CREATE"),
    ("write", "saved", "save", "WRITE"),
    ("write", "stream", "main", "FLUSH"),
    ("mkdir", "made", "work", "THREAD"),
    ("rename", "saved", "main", "RENAME"),
]


@pytest.mark.parametrize(
    "options",
    [["-g", "-O0"], ["-g", "-O2"], ["-g", "-O2", "-static-pie"], ["-g", "-gz", "-O2"]],
    ids=" ".join,
)
def test_the_line_that_did_it_is_told(tmp_path: Path, options: list[str]) -> None:
    found, _ = record(tmp_path, compile_program(tmp_path, CHANGES, *options))
    for kind, path, function, mark in EXPECTED:
        place = of_operation(found, kind, path)[0]
        told = place["function"], place["line"], Path(place["file"]).name
        assert told == (function, line_of(CHANGES, mark), "app.c"), (kind, path)
        assert place["module"] == str(tmp_path / "app") and place["offset"]
    around = of_operation(found, "write", "saved")[1]
    assert (around["function"], around["line"]) == ("main", line_of(CHANGES, "MAIN"))


@pytest.mark.parametrize(
    "options",
    [["-O0"], ["-O1", "-fno-omit-frame-pointer", "-fno-inline", "-fno-optimize-sibling-calls"]],
    ids=" ".join,
)
def test_callers_are_told_where_a_frame_pointer_is_kept(tmp_path: Path, options: list[str]) -> None:
    found, _ = record(tmp_path, compile_program(tmp_path, FRAMES, "-g", *options))
    for path, around in (("plain", []), ("first", []), ("second", []), ("moved", ["moving"])):
        told = [one["function"] for one in of_operation(found, "mkdir", path)]
        assert told == ["make", "middle", *around, "main"], path


# The same system call at the same depth of the stack, from two lines by turns and at random.
TURNS = """#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((noipa)) static void put(int file) {
    if (write(file, "x", 1) < 0) abort();
    asm volatile("");
}

int main(void) {
    int even = open("even", O_WRONLY | O_CREAT, 0644), odd = open("odd", O_WRONLY | O_CREAT, 0644);
    for (int turn = 0; turn < 200; turn++) {
        if (turn < 100 ? turn % 2 : rand() % 2)
            put(odd);  // ODD
        else
            put(even);  // EVEN
    }
    return 0;
}
"""


def test_a_walk_that_is_known_again_is_of_the_same_line(tmp_path: Path) -> None:
    found, _ = record(tmp_path, compile_program(tmp_path, TURNS, "-g", "-O2"))
    written = [one for one in found if one["operation"] == "write"]
    assert len(written) == 200
    for one in written:
        told = [(each["function"], each["line"]) for each in one["by"]["frames"][:2]]
        assert told[0][0] == "put"
        assert told[1] == ("main", line_of(TURNS, one["path"].upper()))


def test_without_debug_symbols_the_function_and_without_any_the_address(tmp_path: Path) -> None:
    program = compile_program(tmp_path, CHANGES, "-O2")
    for strips in (False, True):
        if strips:
            subprocess.run(["strip", program], check=True)
        room = tmp_path / str(strips)
        room.mkdir()
        found, _ = record(room, program)
        (first, *_), (second, *_) = (of_operation(found, "write", p) for p in ("saved", "stream"))
        assert {first["module"], second["module"]} == {str(program)}
        assert first["offset"] != second["offset"]
        assert (first["line"], first["file"]) == (0, "")
        if strips:
            assert first["function"] == ""
        else:
            assert first["function"].startswith("save+0x")


def test_code_that_a_process_made_has_the_name_that_it_tells(tmp_path: Path) -> None:
    found, said = record(tmp_path, compile_program(tmp_path, MADE_CODE, "-g", "-O2"))
    Path(said.strip()).unlink()
    place = of_operation(found, "mkdir", "made")[0]
    assert (place["function"], place["file"], place["line"]) == ("store", "/srv/app.py", 0)


def test_a_program_in_the_recorded_folder_holds_nothing_up(tmp_path: Path) -> None:
    """Reading its code would ask the recorder, which waits for just that."""
    program = compile_program(tmp_path, CHANGES, "-g", "-O2")
    places = make_places(tmp_path)
    shutil.copy2(program, places.backing / "app")
    with start_recording(places, "--callers", "--stacks") as recording:
        subprocess.run(["./app"], cwd=recording.mount, check=True, timeout=60)
        records = recording.finish()
    assert {each.by[2] for each in records if each.by} == {"app"}
