/* No handle reaches the driver after the program has destroyed its object. The simulated driver
 * ends a program that passes one. */
#include "cuda/test/busy.h"
#include "cuda/test/handles.h"

#define THREADS 8
#define OPERATIONS 16000

int main(int count, char **words) {
    static struct setting s;
    uint64_t seed = count > 1 ? strtoull(words[1], NULL, 10) : 1;
    uint64_t operations = count > 2 ? strtoull(words[2], NULL, 10) : OPERATIONS;
    busy_make(&s, 1);
    handles_run(s.library, THREADS, operations, seed);
    return 0;
}
