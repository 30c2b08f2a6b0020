package run

import (
	"os"
	"path/filepath"
	"testing"
)

// What the caller leaves open, and where it stands, shows the command nothing that it must not see.
func TestRemoteCallerLeavesOpen(t *testing.T) {
	h := startHost(t, "a100-80g").namespaces()
	var opened []*os.File
	for _, path := range []string{filepath.Dir(h.instance), h.instance} {
		folder, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer folder.Close()
		opened = append(opened, folder)
	}
	script := "for d in /proc/self/fd/3/m /proc/self/fd/4 .; do if [ -e $d/agent.sock ]; then echo outside; else echo inside; fi; done"
	command := func(backend string) outcome {
		cmd := h.command(filepath.Join(string(h.tree), "bin", "divvy"), "run", "--simgpu", "m", "--backend", backend, "--memory", "1Gi", "--", "sh", "-c", script)
		cmd.Dir, cmd.ExtraFiles = h.instance, opened
		return h.ended(cmd)
	}
	if o := command("slice"); o.out != "outside\noutside\noutside" || o.err != "" {
		t.Fatalf("the machine's folder has other files than the test looks for: %+v", o)
	}
	if o := command("remote"); o.out != "inside\ninside\ninside" || o.err != "divvy: descriptor 4 is closed for the command: "+h.instance+" is hidden from it" {
		t.Errorf("%+v", o)
	}
}
