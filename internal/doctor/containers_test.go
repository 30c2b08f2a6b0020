package doctor

import (
	"os"
	"path/filepath"
	"testing"
)

// saying is a program that prints a line.
func saying(t *testing.T, h Host, name, line string) {
	t.Helper()
	path := filepath.Join(h.Root, "usr/bin", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho '"+line+"'\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestRuntimes(t *testing.T) {
	for name, c := range map[string]struct {
		program, says string
		files         map[string]string
		devices       bool
		status        Status
		found, next   string
	}{
		"new Docker":                  {"docker", "Docker version 28.2.2, build e6534b4", nil, true, OK, "docker 28.2.2", ""},
		"old Docker, nobody needs it": {"docker", "Docker version 20.10.24+dfsg1, build 297e128", nil, false, OK, "docker takes devices of shares from version 25.0", ""},
		"old Docker":                  {"docker", "Docker version 20.10.24+dfsg1, build 297e128", nil, true, Warn, "docker takes devices of shares from version 25.0", "docs/containers.md"},
		"Docker switched off":         {"docker", "Docker version 27.0.1", map[string]string{"etc/docker/daemon.json": `{"features": {"cdi": false}}`}, true, Warn, "features", "mend"},
		"Docker switched on":          {"docker", "Docker version 27.0.1", map[string]string{"etc/docker/daemon.json": `{"features": {"cdi": true}}`}, true, OK, "docker 27.0.1", ""},
		"old podman":                  {"podman", "podman version 3.4.4", nil, true, Warn, "podman takes devices of shares from version 4.1", "mend"},
		"containerd switched on":      {"containerd", "containerd github.com/containerd/containerd 1.7.2", map[string]string{"etc/containerd/config.toml": "  enable_cdi = true\n"}, true, OK, "containerd 1.7.2", ""},
		"containerd switched off":     {"containerd", "containerd github.com/containerd/containerd 1.7.2", nil, true, Warn, "enable_cdi", "mend"},
		"says nothing":                {"crio", "", nil, true, Warn, "the version of crio is not known", "mend"},
	} {
		h := machine(t, c.files)
		saying(t, h, c.program, c.says)
		checks := h.runtimeChecks(t.Context(), c.devices)
		if len(checks) != 1 {
			t.Errorf("%s: %+v", name, checks)
			continue
		}
		want(t, checks[0], c.status, c.found, c.next)
	}
	if checks := machine(t, nil).runtimeChecks(t.Context(), true); checks != nil {
		t.Errorf("without a runtime: %+v", checks)
	}
}

func TestCDIFiles(t *testing.T) {
	const share = `{"devices":[{"containerEdits":{"mounts":[{"hostPath":"/dev/shm/divvy-0/tenants/containers/a1","containerPath":"/run/divvy/share"}]}}]}`
	const nvidia = "containerEdits:\n  mounts:\n  - hostPath: /usr/lib/libcuda.so.535.1\n    containerPath: /usr/lib/libcuda.so.535.1\n"
	h := machine(t, map[string]string{
		"var/run/cdi/divvy-share-train.json": share, "dev/shm/divvy-0/tenants/containers/a1/config": "",
		"etc/cdi/nvidia.yaml": nvidia, "usr/lib/libcuda.so.535.1": "",
		"etc/cdi/other.yaml": "hostPath: /none\n", // somebody else's, who may know
	})
	if checks, shares := h.cdiChecks(); len(checks) != 0 || !shares {
		t.Errorf("all is well: %+v, shares %v", checks, shares)
	}
	h = machine(t, map[string]string{"var/run/cdi/divvy-share-train.json": share, "etc/cdi/nvidia.yaml": nvidia})
	checks, _ := h.cdiChecks()
	if len(checks) != 2 {
		t.Fatalf("%+v", checks)
	}
	want(t, checks[0], Warn, "divvy-share-train.json", "rm ")
	want(t, checks[1], Warn, "names /usr/lib/libcuda.so.535.1, which is not there", "nvidia-ctk cdi generate")
}
