#include "cuda/test/code.h"

const char code_huge[] = HEAD ".global .align 8 .b8 room[600][1048576];\n";
const char code_large[] =
    HEAD "/* .global .b8 none[9]; */ .visible .global .align 8 .b8 room[314572800];\n"
         ".visible .entry use() { ret; }\n";
const char code_small[] = HEAD ".const .align 4 .u32 table[3] = {1, 2, 3};\n"
                               ".global .f64 sums[100000];\n";

void code_check_account(const struct setting *setting, uint64_t blocks) {
    uint64_t used = setting_used(setting), truth = sim_used(setting, 0);

    CHECK(used >= truth);
    CHECK(used - truth <= blocks * BLOCK);
    CHECK(sim_peak(setting, 0) <= LIMIT);
}
