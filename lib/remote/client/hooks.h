/* What is to be done when the connection begins, and in the child of a fork: each file says it for what is its own, and the
 * session calls them without knowing them. The linker lays the functions side by side, in no particular order. */
#ifndef DIVVY_REMOTE_HOOKS_H
#define DIVVY_REMOTE_HOOKS_H

struct remote_link;

typedef void remote_begun(struct remote_link *link);
typedef void remote_forked(void);

#define ON_BEGUN(function)                                                                         \
    static remote_begun *const begun_##function                                                    \
        __attribute__((section("remote_on_begun"), used)) = function
/* The child has one thread, and nothing of the parent's locks and threads: the function makes the file's state new. */
#define ON_FORKED(function)                                                                        \
    static remote_forked *const forked_##function                                                  \
        __attribute__((section("remote_on_forked"), used)) = function

#endif
