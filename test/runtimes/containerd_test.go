package runtimes

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	containerd17 = `version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "%[1]s"
  restrict_oom_score_adj = true
  cdi_spec_dirs = ["%[3]s/cdi"]
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = "%[2]s"
`
	containerd2 = `version = 3
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "%[1]s"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  cdi_spec_dirs = ["%[3]s/cdi"]
  [plugins."io.containerd.cri.v1.runtime".containerd]
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
        BinaryName = "%[2]s"
`
	nriOn = `
[plugins."io.containerd.nri.v1.nri"]
  disable = false
  disable_connections = false
  socket_path = "%s/nri.sock"
  plugin_path = "%[1]s/plugins"
  plugin_config_path = "%[1]s/conf.d"
`
	nriOff = `
[plugins."io.containerd.nri.v1.nri"]
  disable = true
`
)

func configureContainerd17(m *machine, nri bool) []string { return m.containerd(containerd17, nri) }
func configureContainerd2(m *machine, nri bool) []string  { return m.containerd(containerd2, nri) }

func (m *machine) containerd(config string, nri bool) []string {
	text := fmt.Sprintf(config, imageName, m.low, m.dir)
	text = strings.Replace(text, "\n", fmt.Sprintf("\nroot = %q\nstate = %q\n[grpc]\n  address = %q\n", m.dir+"/root", m.dir+"/state", m.dir+"/c.sock"), 1)
	if nri {
		text += fmt.Sprintf(nriOn, m.dir)
	} else {
		text += nriOff
	}
	return []string{filepath.Join(m.programs, "containerd"), "--config", m.write("config.toml", text)}
}

func loadContainerd(m *machine, archive string) {
	m.t.Helper()
	file, err := os.Open(archive)
	if err != nil {
		m.t.Fatal(err)
	}
	defer file.Close()
	load := exec.CommandContext(m.t.Context(), filepath.Join(m.programs, "ctr"), "--address", m.dir+"/c.sock", "--namespace=k8s.io", "images", "import", "-")
	load.Stdin = file
	if said, err := load.CombinedOutput(); err != nil {
		m.t.Fatalf("load the image: %v: %s", err, said)
	}
}
