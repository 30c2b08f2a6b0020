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

/* The path for a controller, "" for none. */
static void under(const char *container, const char *runtime, const char *controller,
                  const char *want) {
    char got[256] = "";
    CHECK(cgroup_under(container, runtime, ID, controller, got, sizeof got) == (*want != '\0'));
    CHECK(strcmp(got, want) == 0);
}

static void folder(const char *mounts, const char *controller, const char *path, const char *want) {
    char mount[64] = "", got[64] = "";
    CHECK(cgroup_folder(mounts, controller, path, mount, got, sizeof got) == (*want != '\0'));
    CHECK(*want == '\0' || (strcmp(got, want) == 0 && strncmp(got, mount, strlen(mount)) == 0));
}

static void test_controllers(void) {
    const char *second = "0::/pods/" ID "\n", *runtime = "9:rdma:/x\n0::/x\n";
    under(second, runtime, "", "/pods/" ID);
    under(second, runtime, "rdma", "");
    under("9:cpu,rdma:/pods/" ID "\n0::/\n", runtime, "rdma", "/pods/" ID);
    under("9:cpu,rdmax:/pods/" ID "\n0::/\n", runtime, "rdma", "");
    under("9:rdma:/\n0::/pods/" ID "\n", runtime, "rdma", "");
    under("0::/pods/" ID "/inner\n", runtime, "", "/pods/" ID);
    under(second, second, "", "");
    under("0::/pods\n", runtime, "", "");
    under("", "", "", "");
    char small[8];
    CHECK(!cgroup_under(second, runtime, ID, "", small, sizeof small));

    const char *mounts = "22 1 0:5 / /proc rw - proc proc rw\n"
                         "30 1 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup rw\n"
                         "31 1 0:27 / /sys/fs/cgroup/rdma rw - cgroup cgroup rw,rdma\n"
                         "32 1 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n";
    folder(mounts, "", "/pods/a", "/sys/fs/cgroup/pods/a");
    folder(mounts, "rdma", "/pods/a", "/sys/fs/cgroup/rdma/pods/a");
    folder(mounts, "misc", "/pods/a", "");
    folder(mounts, "", "", "");
    folder("30 1 0:26 /pods /cg rw - cgroup2 cgroup rw\n", "", "/pods/a", "/cg/a");
    folder("30 1 0:26 /pod /cg rw - cgroup2 cgroup rw\n", "", "/pods/a", "");
    folder("30 1 0:26 /pods /cg rw - cgroup2 cgroup rw\n", "", "/other", "");
    folder("", "", "/a", "");
    folder("\n - \n1 2 3\n1 2 3 4 5 - cgroup2\n", "", "/a", "");
    folder("1 2 3 / /c - cgroup2 a", "", "/a", "");
    folder(
        "1 2 3 / /a-mount-point-that-is-so-long-that-it-has-no-room-in-the-buffer rw - cgroup2 a "
        "b\n",
        "", "/a", "");
}

static void test_pods(void) {
    static const char *const in[] = {
        "/kubepods/pod01234567-89ab-cdef-0123-456789abcdef/" ID,
        "/kubepods/burstable/pod01234567-89ab-cdef-0123-456789abcdef/" ID,
        "/a/kubelet/kubepods/besteffort/pod0123456789abcdef0123456789abcdef/" ID,
        "/pod01234567-89ab-cdef-0123-456789abcdef/" ID,
        "/kubepods.slice/kubepods-pod01234567_89ab_cdef_0123_456789abcdef.slice/cri-" ID ".scope",
        "/kubepods.slice/kubepods-burstable.slice/"
        "kubepods-burstable-pod01234567_89ab_cdef_0123_456789abcdef.slice/cri-containerd-" ID
        ".scope",
        "/kubepods.slice/kubepods-pod0123456789abcdef0123456789abcdef.slice/crio-" ID ".scope",
    };
    static const char *const out[] = {
        "",
        "/",
        ID,
        "/" ID,
        "/k8s.io/" ID,
        "/pod/" ID,
        "/kubepods/burstable/" ID,
        "/kubepods/pod01234567-89ab-cdef-0123-456789abcde/" ID,
        "/kubepods/pod01234567-89ab-cdef-0123-456789abcdef0/" ID,
        "/kubepods/pod01234567-89ab-cdef-0123-456789abcdeg/" ID,
        "/kubepods/pod01234567_89ab_cdef_0123_456789abcdef/" ID,
        "/kubepods/pod01234567-89ab-cdef-0123-456789abcdef/inner/" ID,
        "/kubepods/xpod01234567-89ab-cdef-0123-456789abcdef/" ID,
        "/machine.slice/machine-libpod_pod_0123456789abcdef0123456789abcdef.slice/libpod-" ID
        ".scope",
        "/pod01234567_89ab_cdef_0123_456789abcdef.slice/" ID,
        "/kubepods.slice/kubepods-burstable.slice/" ID,
        "/.slice/" ID,
    };
    for (size_t i = 0; i < sizeof in / sizeof *in; i++) {
        CHECK(cgroup_in_pod(in[i]));
    }
    for (size_t i = 0; i < sizeof out / sizeof *out; i++) {
        CHECK(!cgroup_in_pod(out[i]));
    }
}

int main(void) {
    test_controllers();
    test_pods();

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
