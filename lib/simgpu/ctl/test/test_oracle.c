/* simgpuctl oracle, segments, slice and clock, on a virtual clock. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "simgpu/ctl/ctl.h"
#include "simgpu/machine/test/setting.h"

static const char *dir;
static FILE *old_stdout;
static char *text;
static size_t size;

static void listen_up(void) {
    old_stdout = stdout;
    stdout = open_memstream(&text, &size);
    CHECK(stdout);
}

/* What was printed since must be this, or begin with it. */
__attribute__((format(printf, 2, 3))) static void heard(bool all, const char *format, ...) {
    char *want;
    va_list list;

    fclose(stdout);
    stdout = old_stdout;
    va_start(list, format);
    CHECK(vasprintf(&want, format, list) >= 0);
    va_end(list);
    if (strncmp(text, want, strlen(want)) != 0 || (all && strlen(text) != strlen(want))) {
        fprintf(stderr, "have:\n%swant:\n%s", text, want);
    }
    CHECK(strncmp(text, want, strlen(want)) == 0 && (!all || strlen(text) == strlen(want)));
    free(want);
    free(text);
}

static void move(uint64_t ns, uint64_t now) {
    listen_up();
    CHECK_EQUAL(ctl_clock(dir, ns), 0);
    heard(true, "%llu\n", (unsigned long long)now);
}

/* The dead count for their tenant and have no line of their own. */
static void check_oracle(pid_t a, pid_t b) {
    listen_up();
    CHECK_EQUAL(ctl_oracle(dir, 0), 0);
    heard(false,
          "{\"t\":2500000,\"gpu\":0,\"busy\":2500000,\"tags\":{\"\":0,\"a\":1500000,\"b\":1000000},"
          "\"pids\":{\"%d\":1500000,\"%d\":1000000},\"smTags\":{\"\":0,\"a\":150000,\"b\":100000},"
          "\"smPids\":{\"%d\":150000,\"%d\":100000}}\n"
          "{\"t\":2500000,\"gpu\":1,\"busy\":0,\"tags\":{\"\":0,\"a\":0,\"b\":0},\"pids\":{},"
          "\"smTags\":{\"\":0,\"a\":0,\"b\":0},\"smPids\":{}}\n",
          a, b, a, b);
    setting_kill(b);
    listen_up();
    CHECK_EQUAL(ctl_oracle(dir, 0), 0);
    heard(false,
          "{\"t\":2500000,\"gpu\":0,\"busy\":2500000,\"tags\":{\"\":0,\"a\":1500000,\"b\":1000000},"
          "\"pids\":{\"%d\":1500000},\"smTags\":{\"\":0,\"a\":150000,\"b\":100000},"
          "\"smPids\":{\"%d\":150000}}\n",
          a, a);
}

static void check_segments(pid_t a) {
    listen_up();
    CHECK_EQUAL(ctl_segments(dir, a), 0);
    heard(true, "{\"gpu\":0,\"wall\":0,\"length\":1000000}\n"
                "{\"gpu\":0,\"wall\":2000000,\"length\":500000}\n");
    CHECK_EQUAL(ctl_segments(dir, getpid()), 1);
}

/* A slice that is set holds from the next turn on. */
static void check_slice(void) {
    pid_t c = setting_process("c", 0, 1, 10000000);

    CHECK_EQUAL(ctl_slice(dir, "a", 3000000), 0);
    CHECK_EQUAL(ctl_slice(dir, "nobody", 3000000), 1);
    move(6500000, 9000000);
    listen_up();
    CHECK_EQUAL(ctl_segments(dir, c), 0);
    heard(true, "{\"gpu\":0,\"wall\":3000000,\"length\":1000000}\n"
                "{\"gpu\":0,\"wall\":7000000,\"length\":1000000}\n");
    setting_kill(c);
}

static void check_host_clock(void) {
    sim_machine machine;

    setting_describe(&machine);
    dir = setting_make(&machine);
    CHECK_EQUAL(ctl_clock(dir, 1), 1);
    listen_up();
    CHECK_EQUAL(ctl_play(dir), 1);
    heard(true, "%s", "");
}

int main(void) {
    sim_machine machine;

    setting_describe(&machine);
    machine.virtual_clock = 1;
    dir = setting_make(&machine);
    pid_t a = setting_process("a", 0, 1, 20000000), b = setting_process("b", 0, 1, 20000000);
    move(2500000, 2500000);
    check_oracle(a, b);
    check_segments(a);
    check_slice();
    setting_kill(a);
    check_host_clock();
    return 0;
}
