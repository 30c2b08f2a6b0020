package process

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

func TestHolders(t *testing.T) {
	dir := t.TempDir()
	path, twin := filepath.Join(dir, "node"), filepath.Join(dir, "other", "node")
	if err := os.MkdirAll(filepath.Dir(twin), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{path, twin} {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	held, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	cmd := exec.Command("cat")
	cmd.ExtraFiles = []*os.File{held}
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		input.Close()
		_ = cmd.Wait() // it ends when its input does
	}()
	found, _, err := Holders(path)
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, id := range found {
		pids = append(pids, id.PID)
	}
	slices.Sort(pids)
	want := []int{os.Getpid(), cmd.Process.Pid}
	slices.Sort(want)
	if !slices.Equal(pids, want) {
		t.Errorf("held by %v, want %v", pids, want)
	}
	if found, _, err := Holders(twin); err != nil || len(found) != 0 {
		t.Errorf("a file of the same name: %v, %v", found, err)
	}
	if _, _, err := Holders(filepath.Join(dir, "none")); err == nil {
		t.Error("a file that is not there has no error")
	}
}
