package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/cli/program"
)

const hosts = "../../testdata/hosts"

func TestTopoOfARecordedHost(t *testing.T) {
	for form, golden := range map[string]string{"table": "txt", "json": "json", "nccl-xml": "xml"} {
		status, out, errOut := call(t, "topo", "--host", filepath.Join(hosts, "a800x8.host"), "-o", form)
		want, err := os.ReadFile(filepath.Join(hosts, "a800x8."+golden+".golden"))
		if err != nil {
			t.Fatal(err)
		}
		if status != 0 || out != string(want) {
			t.Errorf("%s: status %d, %s%s", form, status, out, errOut)
		}
	}
}

func TestTopoShowsPairs(t *testing.T) {
	status, out, errOut := call(t, "topo", "--host", filepath.Join(hosts, "a800x8.host"), "-o", "pairs")
	lines := strings.Split(out, "\n")
	if status != 0 || len(lines) != 14 || lines[10] != "strict: 8 of 8 GPUs have an adapter, 8 at a time one of their own" {
		t.Fatalf("status %d, %s%s", status, out, errOut)
	}
	for line, want := range map[int]string{0: "GPU STRICT BRIDGE SOCKET", 1: "GPU0 mlx5_0,mlx5_1 - mlx5_2,mlx5_3,mlx5_8", 8: "GPU7 mlx5_6,mlx5_7 - mlx5_4,mlx5_5,mlx5_9"} {
		if got := strings.Join(strings.Fields(lines[line]), " "); got != want {
			t.Errorf("line %d is %q, want %q", line, got, want)
		}
	}
}

func TestTopoCaptureCanBeShown(t *testing.T) {
	status, recording, errOut := call(t, "topo", "--capture")
	if status != 0 {
		t.Fatalf("capture: %d, %s", status, errOut)
	}
	path := filepath.Join(t.TempDir(), "here.host")
	if err := os.WriteFile(path, []byte(recording), 0o600); err != nil {
		t.Fatal(err)
	}
	if status, out, errOut := call(t, "topo", "--host", path); status != 0 || !strings.Contains(out, "NUMA Affinity") {
		t.Errorf("show: %d, %s%s", status, out, errOut)
	}
}

func TestTopoWrongUsage(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.host")
	if err := os.WriteFile(bad, []byte("divvy-host 1\nfile x y\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		args   []string
		status int
		want   string
	}{
		"form":     {[]string{"--host", filepath.Join(hosts, "vm.host"), "-o", "svg"}, program.ExitUsage, "choose table, json, nccl-xml or pairs"},
		"both":     {[]string{"--host", bad, "--capture"}, program.ExitUsage, "either --capture or --host"},
		"two":      {[]string{"--host", bad, "--simgpu", "a100-80g"}, program.ExitUsage, "either --simgpu or --host"},
		"machine":  {[]string{"--simgpu", "b300"}, program.ExitFailure, "a100-80g"},
		"no file":  {[]string{"--host", "/nowhere.host"}, program.ExitFailure, "/nowhere.host"},
		"bad file": {[]string{"--host", bad}, program.ExitFailure, "bad.host:2: content"},
	} {
		t.Run(name, func(t *testing.T) {
			status, _, errOut := call(t, append([]string{"topo"}, test.args...)...)
			if status != test.status || !strings.Contains(errOut, test.want) {
				t.Errorf("got %d, %s; want %d and %q", status, errOut, test.status, test.want)
			}
		})
	}
}
