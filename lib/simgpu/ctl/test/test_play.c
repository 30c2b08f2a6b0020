/* simgpuctl play: the same lines have the same answers, byte for byte. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "simgpu/ctl/ctl.h"
#include "simgpu/machine/test/setting.h"

static char *played(const char *dir, const char *lines) {
    FILE *old_stdin = stdin, *old_stdout = stdout;
    char *text = NULL;
    size_t size = 0;

    stdin = fmemopen((void *)(uintptr_t)lines, strlen(lines), "r");
    stdout = open_memstream(&text, &size);
    CHECK(stdin && stdout);
    int status = ctl_play(dir);
    fclose(stdin);
    fclose(stdout);
    stdin = old_stdin;
    stdout = old_stdout;
    CHECK_EQUAL(status, 0);
    return text;
}

static void check(const char *dir, const char *lines, const char *want) {
    char *have = played(dir, lines);

    if (strcmp(have, want) != 0) {
        fprintf(stderr, "have:\n%swant:\n%s", have, want);
    }
    CHECK(strcmp(have, want) == 0);
    free(have);
}

/* Slices, one's own and the machine's; a stamp waits for its client's turn; what a client leaves of
 * its slice is the next one's. */
static const char turns[] = "# two clients\n"
                            "client a\n"
                            "client b slice 2ms\n"
                            "submit a 3ms\n"
                            "stamp a\n"
                            "advance 300us\n"
                            "stamp b\n"
                            "submit b 5ms\n"
                            "stamp b\n"
                            "advance 1ms\n"
                            "until idle\n"
                            "advance 1s\n";
static const char turns_told[] = "time 0 a 0\n"
                                 "time 0 a 0 b 0\n"
                                 "time 0 a 0 b 0\n"
                                 "time 0 a 0 b 0\n"
                                 "time 300000 a 300000 b 0\n"
                                 "time 300000 a 300000 b 0\n"
                                 "time 300000 a 300000 b 0\n"
                                 "time 300000 a 300000 b 0\n"
                                 "stamp b 1 1024500\n"
                                 "time 1300000 a 1024000 b 276000\n"
                                 "stamp a 1 7000500\n"
                                 "stamp b 2 8001500\n"
                                 "time 8001500 a 3000500 b 5001000\n"
                                 "time 1008001500 a 3000500 b 5001000\n";

/* Managed memory: 30 us for the faults of each chunk and 100 us for its way, if it has contents. */
static const char pages[] = "client a\n"
                            "client b\n"
                            "managed a 0 20\n"
                            "managed b 3 40\n"
                            "fill a 0\n"
                            "sweep a 0 100us writes 1\n"
                            "until idle\n"
                            "pages\n"
                            "take b 32\n"
                            "prefetch b 3\n"
                            "until idle\n"
                            "pages\n"
                            "scatter b 3 1ms reads 10 writes 10 seed 7 order 1\n"
                            "sweep b 2 1ms\n"
                            "take b 65\n"
                            "free b 3\n"
                            "pages\n";
static const char pages_told[] = "time 0 a 0\n"
                                 "time 0 a 0 b 0\n"
                                 "time 0 a 0 b 0\n"
                                 "time 0 a 0 b 0\n"
                                 "time 0 a 0 b 0\n"
                                 "time 0 a 0 b 0\n"
                                 "time 1400000 a 100000 b 0\n"
                                 "pages a 20971520 20971520 0 10 1300000 b 0 0 0 0 0\n"
                                 "time 1400000 a 100000 b 0\n"
                                 "time 1400000 a 100000 b 0\n"
                                 "time 2400011 a 100000 b 1\n"
                                 "pages a 0 20971520 20971520 10 1300000 b 33554432 0 0 0 0\n"
                                 "time 2400011 a 100000 b 1\n"
                                 "error no area 2\n"
                                 "error Cannot allocate memory\n"
                                 "time 2400011 a 100000 b 1\n"
                                 "pages a 0 20971520 20971520 10 1300000 b 0 0 0 0 0\n";

/* Small kernels of two streams at once; a client that ends takes its work with it. */
static const char streams[] = "client a\n"
                              "client b\n"
                              "submit a 1ms stream 1 blocks 1\n"
                              "submit a 1ms stream 2 blocks 1\n"
                              "submit a 500us stream 2\n"
                              "stamp a stream 1\n"
                              "stamp a stream 2\n"
                              "submit b 8ms\n"
                              "advance 1100us\n"
                              "end b\n"
                              "until idle\n"
                              "slice a 0\n";
static const char streams_told[] = "time 0 a 0\n"
                                   "time 0 a 0 b 0\n"
                                   "time 0 a 0 b 0\n"
                                   "time 0 a 0 b 0\n"
                                   "time 0 a 0 b 0\n"
                                   "time 0 a 0 b 0\n"
                                   "time 0 a 0 b 0\n"
                                   "time 0 a 0 b 0\n"
                                   "stamp a 1 1000500\n"
                                   "time 1100000 a 1024000 b 76000\n"
                                   "time 1100000 a 1024000\n"
                                   "stamp a 2 1576500\n"
                                   "time 1576500 a 1500500\n"
                                   "time 1576500 a 1500500\n";

/* Clients of a server run side by side, each on its part; another process takes turns with all of them. */
static const char group[] = "client s\n"
                            "client a server s percent 30\n"
                            "client b server s percent 70\n"
                            "submit a 300us\n"
                            "submit b 700us\n"
                            "stamp a\n"
                            "stamp b\n"
                            "advance 500us\n"
                            "occupied\n"
                            "client c\n"
                            "submit c 1024us\n"
                            "advance 1024us\n"
                            "occupied\n"
                            "until idle\n"
                            "occupied\n";
static const char group_told[] = "time 0 s 0\n"
                                 "time 0 s 0 a 0\n"
                                 "time 0 s 0 a 0 b 0\n"
                                 "time 0 s 0 a 0 b 0\n"
                                 "time 0 s 0 a 0 b 0\n"
                                 "time 0 s 0 a 0 b 0\n"
                                 "time 0 s 0 a 0 b 0\n"
                                 "time 500000 s 0 a 500000 b 500000\n"
                                 "occupied s 0 a 15000000 b 35000000\n"
                                 "time 500000 s 0 a 500000 b 500000 c 0\n"
                                 "time 500000 s 0 a 500000 b 500000 c 0\n"
                                 "stamp a 1 1000500\n"
                                 "stamp b 1 1000500\n"
                                 "time 1524000 s 0 a 1000500 b 1000500 c 523500\n"
                                 "occupied s 0 a 30000000 b 70000000 c 52350000\n"
                                 "time 2024500 s 0 a 1000500 b 1000500 c 1024000\n"
                                 "occupied s 0 a 30000000 b 70000000 c 102400000\n";

/* Ceilings of more than the whole GPU: who fills it shares it in proportion to the ceilings, and small kernels
 * hinder nobody. A client that ends leaves its part to the others. */
static const char crowd[] = "client s\n"
                            "client a server s percent 60\n"
                            "client b server s\n"
                            "submit a 600us\n"
                            "submit b 1ms\n"
                            "advance 800us\n"
                            "occupied\n"
                            "end a\n"
                            "until idle\n"
                            "client c server s\n"
                            "submit b 1ms blocks 40\n"
                            "submit c 1ms blocks 60\n"
                            "until idle\n"
                            "client d server nobody\n"
                            "client d percent 101\n";
static const char crowd_told[] = "time 0 s 0\n"
                                 "time 0 s 0 a 0\n"
                                 "time 0 s 0 a 0 b 0\n"
                                 "time 0 s 0 a 0 b 0\n"
                                 "time 0 s 0 a 0 b 0\n"
                                 "time 800000 s 0 a 500000 b 500000\n"
                                 "occupied s 0 a 30000000 b 50000000\n"
                                 "time 800000 s 0 b 500000\n"
                                 "time 1300000 s 0 b 1000000\n"
                                 "time 1300000 s 0 b 1000000 c 0\n"
                                 "time 1300000 s 0 b 1000000 c 0\n"
                                 "time 1300000 s 0 b 1000000 c 0\n"
                                 "time 2300000 s 0 b 2000000 c 1000000\n"
                                 "error no server nobody\n"
                                 "error percent is 1 to 100\n";

static const char bad[] = "client\n"
                          "submit c 5\n"
                          "client a\n"
                          "client a\n"
                          "submit a\n"
                          "submit a soon\n"
                          "submit a 0\n"
                          "submit a 5 stream\n"
                          "submit a 5 stream 64\n"
                          "submit a 5 colour 1\n"
                          "advance backwards\n"
                          "until Sunday\n"
                          "sing a\n";
static const char bad_told[] = "error client needs more\n"
                               "error no client c\n"
                               "time 0 a 0\n"
                               "error cannot add client a\n"
                               "error submit needs a time\n"
                               "error submit needs a time\n"
                               "error nothing to do\n"
                               "error stream needs a number\n"
                               "error streams are 0 to 63, blocks at least 1\n"
                               "error unknown word colour\n"
                               "error unknown line advance backwards\n"
                               "error unknown line until Sunday\n"
                               "error unknown line sing a\n";

/* On an instance the machine's own figures hold, and its clock goes on where it was. */
static void check_instance(void) {
    sim_machine machine;

    setting_describe(&machine);
    machine.virtual_clock = 1;
    machine.event_ns = 700;
    const char *dir = setting_make(&machine);
    check(dir, "client a\nstamp a\nadvance 1us\n",
          "time 0 a 0\ntime 0 a 0\nstamp a 1 700\ntime 1000 a 700\n");
    check(dir, "client b\nstamp b\nuntil idle\n",
          "time 1000 b 0\ntime 1000 b 0\nstamp b 1 1700\ntime 1700 b 700\n");
}

int main(void) {
    check(NULL, turns, turns_told);
    check(NULL, turns, turns_told);
    check(NULL, pages, pages_told);
    check(NULL, streams, streams_told);
    check(NULL, group, group_told);
    check(NULL, crowd, crowd_told);
    check(NULL, bad, bad_told);
    check_instance();
    return 0;
}
