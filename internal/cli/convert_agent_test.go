package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/pluginfile"
)

// An agent takes what is written, and gives the GPUs what the file does.
func TestConvertedAgentIsRead(t *testing.T) {
	for _, name := range []string{"sharing", "refused", "whole", "mig"} {
		path := filepath.Join("testdata/convert", name+".yaml")
		_, out, _ := call(t, "convert", path)
		read, err := agentconfig.Parse("agent.yaml", []byte(out), nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		file, err := pluginfile.Parse(path, text)
		if err != nil {
			t.Fatal(err)
		}
		gpus := []pluginfile.GPU{{Index: 0, UUID: "GPU-a"}, {Index: 1, UUID: "GPU-b"}, {Index: 2, UUID: "GPU-c"}, {Index: 3, UUID: "GPU-b1028956-cfa2-0990-bf4a-5da9abb51763"}, {Index: 4, UUID: "GPU-d"}}
		devices, _, err := file.Resolve(gpus)
		if err != nil {
			t.Fatal(err)
		}
		for i, gpu := range gpus {
			want := agentconfig.Form{Backend: "slice"}
			if e := devices[i].Entry; e != nil {
				want = agentconfig.Form{Backend: e.Backend, Replicas: e.Replicas}
			}
			if got, ok := read.Form(agentconfig.GPU{Index: gpu.Index, UUID: gpu.UUID}); got != want && (ok || name != "whole") {
				t.Errorf("%s: GPU %d has the form %+v, not %+v", name, i, got, want)
			}
		}
	}
}
