package runtimes

import (
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/divvy-gpu/divvy/internal/install/installtest"
)

// crio has all files of CRI-O in a folder. Without systemd its containers' cgroups are made by itself.
const crio = `[crio]
root = "%[1]s/root"
runroot = "%[1]s/runroot"
storage_driver = "overlay"
log_dir = "%[1]s/pods"
version_file = "%[1]s/version"
version_file_persist = "%[1]s/version.kept"
clean_shutdown_file = "%[1]s/clean.shutdown"
[crio.api]
listen = "%[1]s/c.sock"
[crio.runtime]
default_runtime = "low"
cgroup_manager = "cgroupfs"
pids_limit = 0
container_exits_dir = "%[1]s/exits"
container_attach_socket_dir = "%[1]s/attach"
namespaces_dir = "%[1]s/ns"
pinns_path = "%[2]s/pinns"
cdi_spec_dirs = ["%[1]s/cdi"]
hooks_dir = ["%[1]s/hooks"]
apparmor_profile = "unconfined"
[crio.runtime.runtimes.low]
runtime_path = "%[3]s"
runtime_root = "%[1]s/low"
monitor_path = "%[4]s"
monitor_cgroup = "pod"
[crio.image]
pause_image = "%[5]s"
pause_command = "/idle"
signature_policy = "%[6]s"
signature_policy_dir = "%[1]s/policies"
[crio.network]
network_dir = "%[1]s/net.d"
plugin_dirs = ["%[1]s/cni"]
[crio.nri]
enable_nri = %[7]v
nri_listen = "%[1]s/nri.sock"
nri_plugin_dir = "%[1]s/plugins"
nri_plugin_config_dir = "%[1]s/conf.d"
`

// older lets a crun of before 1.14 read what CRI-O writes for it: it knows no version of the specification after 1.0, by its
// number alone.
const older = `#!/bin/sh
last=
for argument; do
	[ "$last" != --bundle ] || sed -i 's/"ociVersion": *"1[.][0-9.]*"/"ociVersion":"1.0.2"/' "$argument/config.json"
	last=$argument
done
exec %s "$@"
`

func configureCRIO(m *machine, nri bool) []string {
	m.t.Helper()
	monitor, err := exec.LookPath("conmon")
	if err != nil {
		installtest.Missing(m.t, m.kind.feature, err)
	}
	low := m.low
	if m.kind.low == "crun" {
		low = m.write("crun", fmt.Sprintf(older, m.low))
	}
	policy := m.write("policy.json", `{"default": [{"type": "insecureAcceptAnything"}]}`)
	config := m.write("crio.conf", fmt.Sprintf(crio, m.dir, m.programs, low, monitor, imageName, policy, nri))
	return []string{filepath.Join(m.programs, "crio"), "--config", config, "--config-dir", ""}
}

// loadCRIO has a mount namespace of its own, for the storage is mounted upon itself.
func loadCRIO(m *machine, archive string) {
	m.t.Helper()
	load := exec.CommandContext(m.t.Context(), "unshare", "--mount", "--propagation=private",
		filepath.Join(m.programs, "load"), m.dir+"/root", m.dir+"/runroot", archive, imageName)
	if said, err := load.CombinedOutput(); err != nil {
		m.t.Fatalf("load the image: %v: %s", err, said)
	}
}
