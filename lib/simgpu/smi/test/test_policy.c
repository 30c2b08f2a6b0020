/* nvidia-smi compute-policy: what it says, and what it changes of the time slices. */
#define _GNU_SOURCE
#include "simgpu/machine/test/setting.h"
#include "simgpu/smi/smi.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define US 1000ull
#define NOBODY 65534
#define HEAD                                                                                       \
    "+-------------------------------------+\n"                                                    \
    "| GPU compute policies:               |\n"                                                    \
    "| GPU     Name           Value        |\n"                                                    \
    "|=====================================|\n"
#define ROW(text) "| " text "|\n+-------------------------------------+\n"

static const char *directory;
static char said[4096];

/* Runs it with the words of a line, as another user unless that is 0. What it prints is in `said`. */
static int run_as(uid_t user, const char *line) {
    char words[256], *argv[16], *rest = words;
    int argc = 0, ends[2], status;
    size_t length = 0;

    snprintf(words, sizeof words, "%s", line);
    for (char *word; *line && (word = strsep(&rest, " "));) {
        argv[argc++] = word;
    }
    CHECK_EQUAL(pipe(ends), 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(user == 0 || seteuid(user) == 0);
        dup2(ends[1], STDOUT_FILENO);
        status = (int)smi_compute_policy(argc, argv);
        fflush(stdout);
        _exit(status);
    }
    close(ends[1]);
    for (ssize_t n; (n = read(ends[0], said + length, sizeof said - 1 - length)) > 0;) {
        length += (size_t)n;
    }
    said[length] = '\0';
    close(ends[0]);
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Each line as nvidia-smi 550.163.01 answers it: smi.h tells where that is from. */
static void check_answers(void) {
    static const struct {
        const char *line;
        int status;
        const char *answer;
    } rows[] = {
        {"-x", 2, "Option \"-x\" is not recognized.\n"},
        {"--list=1", 2, "Option \"1\" is not recognized.\n"},
        {"-h more", 2, "Option \"more\" is not recognized.\n"},
        {"--set-timeslice=long", 2, "Option \"long\" is invalid for \"--set-timeslice=long\".\n"},
        {"--set-timeslice long", 2, "Option \"long\" is invalid for \"--set-timeslice\".\n"},
        {"--set-timeslice", 2, "Option \"--set-timeslice\" is missing its value.\n"},
        {"-i -l", 2, "Option \"-i\" is missing its value.\n"},
        {"-l --set-timeslice=1", 2,
         "One, and only one, compute-policy command allowed at a time\n"},
        {"-i 9 -l", 6, "No devices were found\n"},
        {"-i GPU-0 --set-timeslice=1", 6, "No devices were found\n"},
        {"--set-timeslice=4 -i 1", 2,
         "Failed to set timeslice policy with value Unknown for GPU 1 : Invalid Argument\n"
         "Failed to set timeslice for requested devices : Invalid Argument\n"},
        {"--set-timeslice=1 -i 1,3", 0,
         "Successfully set timeslice policy with value Short for GPU 1\n"
         "Successfully set timeslice policy with value Short for GPU 3\n"},
        {"--set-timeslice 2 -i GPU-a2a2a2a2-a2a2-a2a2-a2a2-a2a2a2a2a2a2", 0,
         "Successfully set timeslice policy with value Medium for GPU 2\n"},
        {"--id=3,x,1 -l", 0,
         HEAD ROW("  1   Timeslice       Short         ")
             ROW("  3   Timeslice       Short         ")},
        {"-l", 0,
         HEAD ROW("  0   Timeslice       Default       ")
             ROW("  1   Timeslice       Short         ") ROW("  2   Timeslice       Medium        ")
                 ROW("  3   Timeslice       Short         ")},
        {"--set-timeslice=0", 0,
         "Successfully set timeslice policy with value Default for GPU 0\n"
         "Successfully set timeslice policy with value Default for GPU 1\n"
         "Successfully set timeslice policy with value Default for GPU 2\n"
         "Successfully set timeslice policy with value Default for GPU 3\n"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int status = run_as(0, rows[i].line);
        if (status != rows[i].status || strcmp(said, rows[i].answer) != 0) {
            fprintf(stderr, "\"%s\": status %d: %s\n", rows[i].line, status, said);
        }
        CHECK_EQUAL(status, rows[i].status);
        CHECK_EQUAL(strcmp(said, rows[i].answer), 0);
    }
    for (size_t i = 0; i < 2; i++) {
        CHECK_EQUAL(run_as(0, i ? "-i 0 -h" : ""), 0);
        CHECK(strstr(said, "    Usage: nvidia-smi compute-policy [options]\n"));
    }
}

static void check_permission(void) {
    if (geteuid() != 0) {
        fputs("another user's attempt: not tried, it needs root\n", stderr);
        return;
    }
    CHECK_EQUAL(chmod(directory, 0755), 0);
    CHECK_EQUAL(run_as(NOBODY, "--set-timeslice=1 -i 2"), 4);
    CHECK_EQUAL(
        strcmp(said, "Failed to set timeslice policy with value Short for GPU 2 : Insufficient "
                     "Permissions\n"
                     "Failed to set timeslice for requested devices : Insufficient Permissions\n"),
        0);
    CHECK_EQUAL(run_as(NOBODY, "-l -i 2"), 0);
    CHECK(strstr(said, "Timeslice       Default"));
}

/* How long the turns of two processes are on a contended GPU. The first and the last may be cut. */
static uint64_t turn(struct sg_instance *in) {
    uint64_t length = 0;

    for (uint32_t i = 0; (i = sg_next_client(in, i)) < SG_CLIENTS_MAX; i++) {
        const struct sg_channel *channel = sg_channel(in, i, 0);
        CHECK(channel->segment_count > 3);
        for (uint64_t k = channel->segment_count - 3; k < channel->segment_count - 1; k++) {
            CHECK(length == 0 || length == channel->segments[k].length);
            length = channel->segments[k].length;
        }
    }
    return length;
}

static void check_turns(void) {
    static const struct {
        const char *line;
        uint64_t turn;
    } rows[] = {{"--set-timeslice=1", 500 * US},
                {"--set-timeslice=2", 2000 * US},
                {"--set-timeslice=3", 4000 * US},
                {"--set-timeslice=0", 1000 * US}};
    struct sg_instance in;
    pid_t a = setting_process("a", 0, 1, 1000000 * US),
          b = setting_process("b", 0, 1, 1000000 * US);

    CHECK_EQUAL(sg_open(&in, directory, "", false), 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        CHECK_EQUAL(run_as(0, rows[i].line), 0);
        in.state->time += 50000 * US;
        sg_advance(&in, 0, sg_time(&in));
        CHECK_EQUAL(turn(&in), rows[i].turn);
    }
    setting_kill(a);
    setting_kill(b);
    sg_close(&in);
}

int main(void) {
    static sim_machine machine;

    setting_describe(&machine);
    machine.virtual_clock = 1;
    directory = setting_make(&machine);
    check_answers();
    check_permission();
    check_turns();
    setting_remove(directory);
    CHECK_EQUAL(run_as(0, "-x"), 9);
    return 0;
}
