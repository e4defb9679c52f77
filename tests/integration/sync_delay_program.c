// Makes fsync take a known time: sync_delay_program MS OFTEN LONG_MS COMMAND... Each takes MS, each OFTEN-th LONG_MS.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int must(int result, const char *what) {
    if (result < 0) {
        perror(what);
        exit(1);
    }
    return result;
}

static int install(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fsync, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl");
    return must(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program), "seccomp");
}

// A descriptor travels to the process that delays.
static void pass(int socket, int fd, int *received) {
    char control[CMSG_SPACE(sizeof fd)] = {0}, byte = 0;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (received) {
        must(recvmsg(socket, &message, MSG_CMSG_CLOEXEC), "recvmsg");
        memcpy(received, CMSG_DATA(header), sizeof fd);
        return;
    }
    *header = (struct cmsghdr){CMSG_LEN(sizeof fd), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    must(sendmsg(socket, &message, 0), "sendmsg");
}

static void delay(int listener, const long ms[3]) {
    struct pollfd ready = {.fd = listener, .events = POLLIN};
    for (long count = 1; poll(&ready, 1, -1) > 0 && !(ready.revents & POLLHUP); count++) {
        struct seccomp_notif call = {0};
        if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call) < 0) continue;
        long wait = count % ms[1] ? ms[0] : ms[2];
        struct timespec time = {wait / 1000, wait % 1000 * 1000000};
        nanosleep(&time, NULL);
        struct seccomp_notif_resp go_on = {.id = call.id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
        ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &go_on);
    }
}

int main(int count, char **words) {
    int ends[2], listener, status;
    if (count < 5) return 2;
    long ms[3] = {atol(words[1]), atol(words[2]), atol(words[3])};
    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), "socketpair");
    pid_t child = must(fork(), "fork");
    if (child == 0) {
        listener = install();
        pass(ends[0], listener, NULL);
        close(listener);
        execvp(words[4], words + 4);
        _exit(127);
    }
    pass(ends[1], -1, &listener);
    delay(listener, ms);
    must(waitpid(child, &status, 0), "waitpid");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
