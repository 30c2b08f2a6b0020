package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCapabilities(t *testing.T) {
	root := t.TempDir()
	write := func(path, text string) {
		t.Helper()
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	check := func(want ...string) {
		t.Helper()
		checks := Capabilities(filepath.Join(root, "proc"), filepath.Join(root, "dev"), []Instance{{0, 3, 0}})
		if len(checks) != len(want) {
			t.Fatalf("%+v, want %q", checks, want)
		}
		for i, c := range checks {
			if c.Status != Warn || c.Next == "" || !strings.Contains(c.Found, want[i]) {
				t.Errorf("%+v, want %q", c, want[i])
			}
		}
	}
	if checks := Capabilities(root, root, nil); len(checks) != 0 {
		t.Errorf("without instances: %+v", checks)
	}
	check("cannot be given to programs")
	const of = "proc/driver/nvidia/capabilities/gpu1/mig/gi3/"
	write(of+"access", "DeviceFileMinor: 30\nDeviceFileMode: 292\n")
	check("nvidia-cap30 is missing", "gi3/ci0/access is missing")
	write(of+"ci0/access", "DeviceFileMode: 292\n")
	write("dev/nvidia-caps/nvidia-cap30", "")
	check("names no device node")
	write(of+"ci0/access", "DeviceFileMinor: 31\n")
	check("nvidia-cap31 is missing")
	write("dev/nvidia-caps/nvidia-cap31", "")
	check()
}
