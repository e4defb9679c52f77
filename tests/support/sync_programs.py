"""Programs in C that sync in every way that sync drop answers for, and say what they were told."""

from pathlib import Path

from diskproof.process.start import run

FAMILY = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
#define SAY(call) do { \
    errno = 0; long v = (call); printf("%s: %ld %d\n", #call, v, errno); } while (0)
static void descriptor(int fd) {
    SAY(fsync(fd)); SAY(fdatasync(fd)); SAY(syncfs(fd));
    SAY(sync_file_range(fd, 0, 0, 7)); SAY(sync_file_range(fd, -1, 0, 2));
    SAY(sync_file_range(fd, 0, 9, 8));
    SAY(sync_file_range(fd, 0, 0, 0)); SAY(sync_file_range(fd, 1L << 62, 1L << 62, 7));
}
static void opened(int fd) {
    SAY(fcntl(fd, F_GETFL) & (O_ACCMODE | O_APPEND | O_NONBLOCK));
    SAY(fcntl(fd, F_GETFD)); SAY(write(fd, "12", 2)); SAY(close(fd));
}
int main(int argc, char **argv) {
    chdir(argv[1]);
    int fd = open("file", O_RDWR | O_CREAT, 0644), pipes[2], pair[2], folder = open(".", O_RDONLY);
    write(fd, "hello", 5);
    char *map = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    pipe(pipes); socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    descriptor(fd); descriptor(folder); descriptor(pipes[0]); descriptor(pair[0]); descriptor(-1);
    descriptor(1234);
    int path = open("file", O_PATH), reads = open("file", O_RDONLY); descriptor(path);
    descriptor(reads);
    close(reads); reads = eventfd(0, 0); descriptor(reads); close(reads);
    reads = open("/proc/self/status", O_RDONLY); descriptor(reads); close(reads);
    reads = open("/proc", O_RDONLY | O_DIRECTORY); descriptor(reads); close(reads);
    reads = open("/dev/null", O_RDWR); descriptor(reads); close(reads);
    reads = memfd_create("m", 0); descriptor(reads); close(reads);
    sync();
    SAY(msync(map, 8192, MS_SYNC)); SAY(msync(map, 8192, MS_ASYNC));
    SAY(msync(map + 1, 9, MS_SYNC));
    SAY(msync(map, 8192, MS_SYNC | MS_ASYNC)); SAY(msync(map, 8192, 64));
    SAY(msync(map, 8192, MS_SYNC | MS_INVALIDATE));
    munmap(map + 4096, 4096); SAY(msync(map, 8192, MS_SYNC)); SAY(msync(0, 0, MS_SYNC));
    opened(open("a", O_WRONLY | O_CREAT | O_SYNC | O_APPEND, 0640));
    opened(openat(folder, "b", O_RDWR | O_CREAT | O_DSYNC | O_CLOEXEC, 0600));
    opened(syscall(SYS_open, "c", O_RDWR | O_CREAT | O_SYNC | O_EXCL | O_NONBLOCK, 0600));
    SAY(syscall(SYS_open, "c", O_RDWR | O_CREAT | O_SYNC | O_EXCL, 0600));
    SAY(syscall(SYS_open, 16L, O_RDWR | O_SYNC)); SAY(open("none/x", O_WRONLY | O_SYNC));
    SAY(openat(9999, "x", O_WRONLY | O_SYNC)); SAY(open(".", O_WRONLY | O_SYNC));
    unsigned long how[3] = {O_RDWR | O_CREAT | O_SYNC, 0600, 0},
        bad[3] = {O_RDWR | O_SYNC, 0, 1L << 40};
    opened(syscall(SYS_openat2, folder, "d", how, sizeof how));
    SAY(how[0] == (O_RDWR | O_CREAT | O_SYNC));
    SAY(syscall(SYS_openat2, folder, "d", bad, sizeof bad));
    SAY(syscall(SYS_openat2, folder, "d", how, 8));
    SAY(syscall(SYS_openat2, folder, "d", 16L, sizeof how));
    struct iovec part = {"abc", 3};
    SAY(pwritev2(fd, &part, 1, 0, RWF_DSYNC)); SAY(pwritev2(fd, &part, 1, 4, RWF_SYNC));
    SAY(pwritev2(pipes[1], &part, 1, 0, RWF_SYNC)); SAY(pwritev2(-1, &part, 1, 0, RWF_SYNC));
    SAY(pwritev2(fd, &part, 1, 0, RWF_SYNC | 1 << 30));
    SAY(pwritev2(fd, (void *)16, 1, 0, RWF_SYNC));
    SAY(lseek(fd, 0, SEEK_CUR));
    errno = ENOTTY; fsync(fd); sync(); msync(map, 4096, MS_SYNC); printf("%d\n", errno);
    for (char **name = (char *[]){"file", "a", "b", "c", "d", 0}; *name; name++) unlink(*name);
    return 0;
}
"""

THREADS = r"""
#include <pthread.h>
#include <fcntl.h>
#include <unistd.h>
static void *work(void *fd) {
    for (int i = 0; i < 250; i++) if (fsync((long)fd)) _exit(9); return 0; }
int main(int argc, char **argv) {
    long fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    pthread_t thread[8];
    for (int i = 0; i < 8; i++) pthread_create(thread + i, 0, work, (void *)fd);
    for (int i = 0; i < 8; i++) pthread_join(thread[i], 0);
    return 0;
}
"""

SIGNALS = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>
static volatile long caught;
static void count(int number) { caught++; }
static char *name;
static void *work(void *unused) {
    for (int i = 0; i < 100; i++) {
        long fd;
        /* The compiler believes that a call keeps its arguments. */
        long number = SYS_open, flags = O_RDWR | O_CREAT | O_SYNC, mode = 0600;
        register long r10 __asm__("r10") = 77;
        __asm__ volatile("syscall" : "=a"(fd), "+S"(flags), "+d"(mode), "+r"(r10), "+D"(name)
            : "a"(number) : "rcx", "r11", "memory");
        if (flags != (O_RDWR | O_CREAT | O_SYNC) || mode != 0600 || r10 != 77) _exit(3);
        if (fd == -EINTR) continue;
        if (fd < 0 || fcntl(fd, F_GETFL) & O_SYNC) _exit(4);
        close(fd);
    }
    return 0;
}
int main(int argc, char **argv) {
    name = argv[1];
    struct sigaction action = {.sa_handler = count, .sa_flags = argc > 2 ? SA_RESTART : 0};
    sigaction(SIGALRM, &action, 0);
    struct itimerval often = {{0, 700}, {0, 700}};
    setitimer(ITIMER_REAL, &often, 0);
    pthread_t thread[3];
    for (int i = 0; i < 3; i++) pthread_create(thread + i, 0, work, 0);
    for (int i = 0; i < 3; i++) pthread_join(thread[i], 0);
    return caught > 0 ? 0 : 5;
}
"""

CANCEL = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>
static int fd, which, cleaned;
static void *map;
static void note(void *unused) { cleaned = 1; }
static void *work(void *unused) {
    struct iovec part = {"x", 1};
    pthread_cleanup_push(note, 0);
    pthread_cancel(pthread_self());
    switch (which) {
    case 0: fsync(fd); break;
    case 1: fdatasync(fd); break;
    case 2: msync(map, 4096, MS_SYNC); break;
    case 3: sync_file_range(fd, 0, 0, 7); break;
    case 4: open("/dev/null", O_RDONLY | O_SYNC); break;
    case 5: openat(AT_FDCWD, "/dev/null", O_RDONLY); break;
    case 6: creat("/dev/null", 0600); break;
    case 7: pwritev2(fd, &part, 1, 0, RWF_SYNC); break;
    case 8: close(dup(fd)); break;
    }
    pthread_cleanup_pop(0);
    return 0;
}
int main(int argc, char **argv) {
    fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    ftruncate(fd, 4096);
    map = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    for (which = 0; which < 9; which++) {
        pthread_t thread;
        void *end = 0;
        cleaned = 0;
        pthread_create(&thread, 0, work, 0);
        pthread_join(thread, &end);
        printf("%d %d %d\n", which, end == PTHREAD_CANCELED, cleaned);
    }
    return 0;
}
"""

SPAWN = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
extern char **environ;
int main(int argc, char **argv) {
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600), status;
    if (argc > 2) return fsync(fd);
    if (vfork() == 0) { fsync(fd); _exit(0); }
    wait(&status);
    pid_t child;
    char *words[] = {argv[0], argv[1], "child", 0};
    if (posix_spawn(&child, argv[0], 0, 0, words, environ)) return 9;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}
"""

# 32-bit, without a C library: -m32 needs none then. The exit code is a mask of what went wrong.
NARROW = r"""
static long call(long n, long a, long b, long c, long d, long e, long f) {
    long words[7] = {n, a, b, c, d, e, f}, value;
    __asm__ volatile("push %%ebx; push %%ebp; push %%esi; push %%edi; mov %1, %%eax;"
        "mov 4(%%eax), %%ebx; mov 8(%%eax), %%ecx; mov 12(%%eax), %%edx; mov 16(%%eax), %%esi;"
        "mov 20(%%eax), %%edi; mov 24(%%eax), %%ebp; mov (%%eax), %%eax; int $0x80;"
        "pop %%edi; pop %%esi; pop %%ebp; pop %%ebx"
        : "=a"(value) : "r"(words) : "ecx", "edx", "memory", "cc");
    return value;
}
void start(char *path) {
    long bad = 0, fd = call(5, (long)path, 02 | 0100 | 04010000, 0600, 0, 0, 0);
    bad |= fd < 0 || call(55, fd, 3, 0, 0, 0, 0) & 010000 ? 1 : 0;
    bad |= call(118, fd, 0, 0, 0, 0, 0) ? 2 : 0;
    bad |= call(148, fd, 0, 0, 0, 0, 0) ? 4 : 0;
    bad |= call(118, 99, 0, 0, 0, 0, 0) != -9 ? 8 : 0;
    bad |= call(314, fd, 0, 0, 0, 0, 7) ? 16 : 0;
    bad |= call(314, fd, 0, -1, 0, 0, 7) != -22 ? 32 : 0;
    bad |= call(144, 4096, 4096, 4, 0, 0, 0) != -12 ? 64 : 0;
    long part[2] = {(long)"abc", 3};
    bad |= call(379, fd, (long)part, 1, 0, 0, 2) != 3 ? 128 : 0;
    call(36, 0, 0, 0, 0, 0, 0);
    call(1, bad, 0, 0, 0, 0, 0);
}
__asm__(".globl _start\n_start: mov 8(%esp), %eax\npush %eax\ncall start\n");
"""

RING = r"""
#include <errno.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(void) {
    char parameters[120] = {0};
    long fd = syscall(425, 4, parameters);
    printf("%d\n", fd < 0 ? errno : 0);
}
"""

# Each way to take a file from a descriptor that was synced before, and what a sync says then.
CLOSES = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
static char path[4096];
static int open_synced(void) {
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || fsync(fd) || fsync(fd) || fdatasync(fd)) abort();
    return fd;
}
static void tell(const char *how, int fd) {
    for (int twice = 0; twice < 2; twice++) {
        errno = 0;
        int answer = fsync(fd);
        printf("%s %d %d\n", how, answer, errno);
    }
}
int main(int count, char **words) {
    int ends[2], fd;
    if (count != 2 || pipe(ends)) return 2;
    snprintf(path, sizeof path, "%s/file", words[1]);
    fd = open_synced(), close(fd), tell("close", fd);
    fd = open_synced(), fclose(fdopen(fd, "r+")), tell("fclose", fd);
    fd = open_synced(), close_range(fd, fd, 0), tell("close_range", fd);
    fd = open_synced(), syscall(SYS_close, fd), tell("raw close", fd);
    fd = open_synced(), syscall(SYS_close_range, fd, fd, 0), tell("raw close_range", fd);
    fd = open_synced(), dup2(ends[0], fd), tell("dup2", fd), close(fd);
    fd = open_synced(), dup3(ends[0], fd, 0), tell("dup3", fd), close(fd);
    fd = open_synced(), syscall(SYS_dup2, ends[0], fd), tell("raw dup2", fd), close(fd);
    fd = open_synced(), close(fd), fd = socket(AF_UNIX, SOCK_STREAM, 0), tell("socket", fd);
    close(fd);
    fd = open_synced(), close(fd), fd = open(path, O_RDWR | O_PATH), tell("O_PATH", fd), close(fd);
    fd = open_synced(), close(fd), fd = fileno(fopen(path, "r+")), tell("fopen", fd), close(fd);
    fd = open_synced(), closefrom(fd), tell("closefrom", fd);
}
"""


def compile_program(folder: Path, name: str, source: str, *flags: str) -> Path:
    """An executable of that source."""
    text = folder / f"{name}.c"
    text.write_text(source)
    program = folder / name
    argv = ["gcc", "-w", "-O2", "-pthread", *flags, str(text), "-o", str(program)]
    run(argv, timeout=60.0)
    return program
