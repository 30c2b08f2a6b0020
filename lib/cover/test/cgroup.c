/* Finding a container's own cgroup in what the kernel tells, and in nonsense. */
#include "cover/cgroup.h"
#include "test/check.h"

#include <string.h>

#define ID "0123456789abcdef"

static void found(const char *container, const char *runtime, const char *want) {
    char got[256] = "";
    CHECK(cgroup_own(container, runtime, ID, got, sizeof got));
    if (strcmp(got, want) != 0) {
        fprintf(stderr, "%s: %s\n", container, got);
        exit(1);
    }
}

static void missing(const char *container, const char *runtime) {
    char got[256];
    if (cgroup_own(container, runtime, ID, got, sizeof got)) {
        fprintf(stderr, "%s: %s\n", container, got);
        exit(1);
    }
}

int main(void) {
    const char *runtime = "3:memory:/system/runtime\n0::/system/runtime\n";
    found("0::/pods/" ID "\n", runtime, ":/pods/" ID);
    found("0::/" ID, runtime, ":/" ID);
    found("0::/pods/" ID "/inner/deep\n", runtime, ":/pods/" ID);
    found("0::/kube.slice/cri-containerd-" ID ".scope\n", runtime,
          ":/kube.slice/cri-containerd-" ID ".scope");
    found("9:name=systemd:/\n3:memory:/pods/" ID "\n0::/\n", runtime, "memory:/pods/" ID);
    found("3:cpu,cpuacct:/a:b/" ID "\n", runtime, "cpu,cpuacct:/a:b/" ID);
    found("0::/pods/" ID "\n", "", ":/pods/" ID);
    found("0::/pods/" ID "\n", "0::/pods/" ID "x\n", ":/pods/" ID);
    found("0::/pods/" ID "\n", "0::/pods\n", ":/pods/" ID);
    found("0::/pods/" ID "\n", "3:memory:/pods/" ID "\n", ":/pods/" ID);

    /* The container is where others are. */
    missing("0::/user.slice/session-1.scope\n", runtime);
    missing("0::/pods\n", runtime);
    missing("0::/\n", runtime);
    missing("0::/pods/x" ID "\n", runtime);
    missing("0::/pods/" ID "x\n", runtime);
    missing("0::/pods/cri-" ID "\n", runtime);
    missing("0::/pods/cri-" ID ".slice\n", runtime);
    missing("0::/pods/cri" ID ".scope\n", runtime);
    missing("0::/pods/" ID ".scope\n", runtime);
    missing("0::/pods/" ID "\n", "0::/pods/" ID "\n");
    missing("0::/pods/" ID "\n", "0::/pods/" ID "/runtime\n");

    missing("", "");
    missing("\n\n", runtime);
    missing("0:\n", runtime);
    missing(ID "\n", runtime);
    missing("0::" ID "\n", runtime);
    missing("0::pods/" ID "\n", runtime);

    char got[256], small[8];
    CHECK(!cgroup_own("0::/pods/" ID "\n", runtime, ID, small, sizeof small));
    CHECK(!cgroup_own("0:://\n", runtime, "", got, sizeof got));
    return 0;
}
