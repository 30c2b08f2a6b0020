#define _GNU_SOURCE
#include "simgpu/mps/test/daemon.h"

#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *machine_dir;
static uint32_t most_clients;
static char log_path[SG_PATH_BYTES];

void daemon_machine(void (*change)(sim_machine *machine), uint32_t most) {
    sim_machine machine;
    char path[SG_PATH_BYTES];

    setting_describe(&machine);
    if (change) {
        change(&machine);
    }
    machine_dir = setting_make(&machine);
    CHECK_EQUAL(chmod(machine_dir, 0755), 0);
    most_clients = most;
    CHECK_EQUAL(setenv("PATH", machine_dir, 1),
                0); /* has no server: the daemon takes this program */
    snprintf(path, sizeof path, "%s/pipe", machine_dir);
    CHECK_EQUAL(setenv("CUDA_MPS_PIPE_DIRECTORY", path, 1), 0);
    snprintf(path, sizeof path, "%s/log", machine_dir);
    CHECK_EQUAL(setenv("CUDA_MPS_LOG_DIRECTORY", path, 1), 0);
    CHECK(snprintf(log_path, sizeof log_path, "%s/daemon.log", machine_dir) < (int)sizeof log_path);
}

int daemon_connect(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    CHECK(fd >= 0 && mps_entry(address.sun_path, "control"));
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static bool answers(void) {
    int fd = daemon_connect();

    close(fd);
    return fd >= 0;
}

static pid_t begin(bool any_user) {
    static struct sg_instance in;
    pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        CHECK(freopen(log_path, "w", stdout));
        CHECK_EQUAL(sg_open(&in, machine_dir, "", false), 0);
        _exit(mps_start(&(struct mps_options){
            .driver = 555, .machine = &in, .most = most_clients, .any_user = any_user}));
    }
    EVENTUALLY(answers());
    return child;
}

pid_t daemon_start(void) {
    return begin(false);
}

pid_t daemon_start_for_all(void) {
    return begin(true);
}

const char *daemon_ask(const char *line) {
    static char said[65536];
    char packet[1 + MPS_SAID_BYTES] = "c";
    size_t length = 0;
    int fd = daemon_connect();

    CHECK(fd >= 0 && recv(fd, packet + 1, sizeof packet - 1, 0) > 0);
    snprintf(packet + 1, sizeof packet - 1, "%s", line);
    CHECK(send(fd, packet, 1 + strlen(line), MSG_NOSIGNAL) > 0);
    for (ssize_t got; (got = recv(fd, packet, sizeof packet, 0)) > 0 && packet[0] == MPS_SAID;) {
        length += (size_t)snprintf(said + length, sizeof said - length, "%.*s\n", (int)got - 1,
                                   packet + 1);
    }
    close(fd);
    said[length] = '\0';
    return said;
}

int daemon_server(void) {
    return atoi(daemon_ask("get_server_list"));
}

int daemon_console(void) {
    static const char hello = SG_JOIN_UI;
    char greeting[16];
    int fd = daemon_connect();

    CHECK(fd >= 0 && recv(fd, greeting, sizeof greeting, 0) > 0);
    CHECK_EQUAL(send(fd, &hello, sizeof hello, MSG_NOSIGNAL), 1);
    EVENTUALLY(daemon_logged_last("NEW UI"));
    return fd;
}

bool daemon_logged_last(const char *text) {
    char line[4096] = "";
    FILE *file = fopen(log_path, "re");

    CHECK(file);
    while (fgets(line, sizeof line, file)) {
    }
    fclose(file);
    return strstr(line, text) != NULL;
}

bool daemon_logged(const char *text) {
    char line[4096];
    bool has = false;
    FILE *file = fopen(log_path, "re");

    CHECK(file);
    while (!has && fgets(line, sizeof line, file)) {
        has = strstr(line, text) != NULL;
    }
    fclose(file);
    return has;
}

void daemon_end(pid_t daemon) {
    int status;

    daemon_ask("quit -t 0");
    CHECK_EQUAL(waitpid(daemon, &status, 0), daemon);
    CHECK_EQUAL(status, 0);
}

struct worker worker_start(int (*body)(int channel), uid_t uid) {
    int ends[2];

    CHECK_EQUAL(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(ends[0]);
        CHECK(uid == 0 || setuid(uid) == 0);
        _exit(body(ends[1]));
    }
    close(ends[1]);
    return (struct worker){.pid = child, .channel = ends[0]};
}

void worker_tell(int channel, uint64_t number) {
    CHECK_EQUAL(write(channel, &number, sizeof number), sizeof number);
}

uint64_t worker_hear(int channel) {
    uint64_t number;

    CHECK_EQUAL(read(channel, &number, sizeof number), sizeof number);
    return number;
}

int worker_end(struct worker *worker) {
    int status;

    close(worker->channel);
    CHECK_EQUAL(waitpid(worker->pid, &status, 0), worker->pid);
    return status;
}

void worker_kill(struct worker *worker) {
    CHECK_EQUAL(kill(worker->pid, SIGKILL), 0);
    worker_end(worker);
}
