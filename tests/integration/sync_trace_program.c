// What the tests of sync trace watch: sync_trace_program WHAT [FILE].
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static const char *file;
static char block[1 << 16];
static volatile sig_atomic_t ticks;

static int must(int result, const char *what) {
    if (result < 0) {
        perror(what);
        exit(1);
    }
    return result;
}

static int open_file(int flags) { return must(open(file, O_RDWR | O_CREAT | flags, 0600), "open"); }

static void dirty(int fd, size_t bytes) { must(pwrite(fd, block, bytes, 0), "pwrite"); }

static int each(void) {
    int fd = open_file(0);
    for (int i = 0; i < 3; i++) {
        dirty(fd, 4096);
        must(fsync(fd), "fsync");
    }
    for (int i = 0; i < 2; i++) {
        dirty(fd, 4096);
        must(fdatasync(fd), "fdatasync");
    }
    dirty(fd, 4096);
    must(syncfs(fd), "syncfs");
    dirty(fd, 4096);
    must(sync_file_range(fd, 0, 4096, SYNC_FILE_RANGE_WRITE), "sync_file_range");
    char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    map[0] = 1;
    must(msync(map, 4096, MS_ASYNC), "msync");
    must(msync(map, 4096, MS_SYNC), "msync");
    sync();
    return 0;
}

static void *sync_own_file(void *number) {
    char name[4096];
    snprintf(name, sizeof name, "%s-%ld", file, (long)number);
    int fd = must(open(name, O_RDWR | O_CREAT, 0600), "open");
    for (int i = 0; i < 25; i++) {
        dirty(fd, 4096);
        must(fsync(fd), "fsync");
    }
    return NULL;
}

static int threads(void) {
    pthread_t ids[8];
    for (long i = 0; i < 8; i++) pthread_create(&ids[i], NULL, sync_own_file, (void *)i);
    for (int i = 0; i < 8; i++) pthread_join(ids[i], NULL);
    return 0;
}

static int once(void) {
    int fd = open_file(0);
    dirty(fd, 4096);
    must(fsync(fd), "fsync");
    return 0;
}

static void tell(int result) { printf("%d\n", result < 0 ? errno : 0); }

static int errors(void) {
    int ends[2];
    must(pipe(ends), "pipe");
    int path = must(open("/", O_PATH), "open");
    tell(fsync(77));
    tell(fsync(ends[1]));
    tell(fdatasync(ends[0]));
    tell(syncfs(-1));
    tell(sync_file_range(ends[0], 0, 1, SYNC_FILE_RANGE_WRITE));
    tell(fsync(path));
    return 0;
}

static void tick(int number) {
    (void)number;
    ticks++;
}

static int on_alarm(void) {
    struct sigaction action = {.sa_handler = tick};
    struct itimerval often = {{0, 1000}, {0, 1000}};
    int fd = open_file(0), failed = 0, interrupted = 0;
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    while (ticks < 20) {
        dirty(fd, 4096);
        if (fsync(fd) != 0) *(errno == EINTR ? &interrupted : &failed) += 1;
    }
    memset(&often, 0, sizeof often);
    setitimer(ITIMER_REAL, &often, NULL);
    printf("%d %d %d\n", failed, interrupted, (int)ticks);
    return 0;
}

static long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

static int times(void) {
    int fd = open_file(0);
    long taken[100];
    for (int i = 0; i < 100; i++) {
        dirty(fd, sizeof block);
        long start = now();
        must(fsync(fd), "fsync");
        taken[i] = now() - start;
    }
    for (int i = 0; i < 100; i++) printf("%ld\n", taken[i]);
    return 0;
}

static int storm(void) {
    int fd = must(memfd_create("storm", 0), "memfd_create");
    puts("running");
    fflush(stdout);
    getchar();
    for (int i = atoi(file); i > 0; i--) must(fsync(fd), "fsync");
    puts("done");
    return 0;
}

static void *sync_cancelled(void *nothing) {
    int before;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    pthread_cancel(pthread_self());
    int fd = open_file(0);
    must(fsync(fd), "fsync");
    pthread_setcancelstate(before, NULL);
    fsync(fd);
    return nothing;
}

static int cancel(void) {
    pthread_t id;
    void *result = NULL;
    pthread_create(&id, NULL, sync_cancelled, NULL);
    pthread_join(id, &result);
    puts(result == PTHREAD_CANCELED ? "cancelled" : "not cancelled");
    return 0;
}

static int dsync(void) {
    int fd = open_file(0), synced = open_file(O_DSYNC);
    struct iovec part = {block, 4096};
    for (int i = 0; i < 5; i++) must(pwritev2(fd, &part, 1, 0, RWF_DSYNC), "pwritev2");
    for (int i = 0; i < 200; i++) must(write(synced, block, 4096), "write");
    return 0;
}

static int until_told(void) {
    struct pollfd told = {.fd = 0, .events = POLLIN};
    int fd = open_file(0), count = 0;
    puts("running");
    fflush(stdout);
    for (; poll(&told, 1, 1) == 0; count++) {
        dirty(fd, 4096);
        must(fsync(fd), "fsync");
    }
    printf("%d\n", count);
    return 0;
}

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "";
    file = count > 2 ? words[2] : "";
    if (!strcmp(what, "each")) return each();
    if (!strcmp(what, "threads")) return threads();
    if (!strcmp(what, "once")) return once();
    if (!strcmp(what, "errors")) return errors();
    if (!strcmp(what, "alarm")) return on_alarm();
    if (!strcmp(what, "times")) return times();
    if (!strcmp(what, "storm")) return storm();
    if (!strcmp(what, "cancel")) return cancel();
    if (!strcmp(what, "dsync")) return dsync();
    if (!strcmp(what, "until-told")) return until_told();
    if (!strcmp(what, "killed")) return once() || raise(SIGKILL);
    fprintf(stderr, "no such thing to do: %s\n", what);
    return 2;
}
