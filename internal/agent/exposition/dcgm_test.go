package exposition

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
)

// Under DCGM's names GPUs are told of where its exporter does not run, and a pod is named where one has the GPU.
func TestDCGM(t *testing.T) {
	runs, asked := false, 0
	e := shown(&teller{listing: sample()})
	e.config.DCGM, e.other = true, exporter{runs: func() bool { asked++; return runs }}
	text := told(t, e)
	const first = `gpu="0",UUID="GPU-0",pci_bus_id="00000000:3B:00.0",device="nvidia0",modelName="NVIDIA A100",Hostname="gpu-1",DCGM_FI_DRIVER_VERSION="550.90.07",namespace="",pod="",container=""`
	for _, want := range []string{
		`SM_CLOCK{` + first + `} 1410`, `MEM_CLOCK{` + first + `} 1593`, `GPU_TEMP{` + first + `} 61`, `POWER_USAGE{` + first + `} 240.5`,
		`TOTAL_ENERGY_CONSUMPTION{` + first + `} 5e+06`, `GPU_UTIL{` + first + `} 87`, `MEM_COPY_UTIL{` + first + `} 0`, `XID_ERRORS{` + first + `} 0`,
		`FB_USED{` + first + `} 3072`, `FB_FREE{` + first + `} 77824`, `FB_RESERVED{` + first + `} 1024`,
	} {
		if !strings.Contains(text, "\nDCGM_FI_DEV_"+want+"\n") {
			t.Errorf("it lacks %s", want)
		}
	}
	if !strings.Contains(text, `DCGM_FI_DEV_XID_ERRORS{gpu="1",UUID="GPU-1"`) || strings.Contains(text, `DCGM_FI_DEV_GPU_UTIL{gpu="1"`) {
		t.Error("a GPU of which the driver tells little has figures, or lacks its XID")
	}
	parsed(t, text)
	runs = true
	if again := told(t, e); again != text || asked != 1 {
		t.Errorf("asked %d times at once", asked)
	}
	e.other.at = time.Now().Add(-exporterAgain)
	if text := told(t, e); strings.Contains(text, "DCGM_") || !strings.Contains(text, "divvy_gpu_info") || asked != 2 {
		t.Error("both tell at once")
	}
	page, err := os.ReadFile("../../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range dcgmFamilies {
		if !strings.Contains(string(page), "`"+f.name+"`") {
			t.Errorf("docs/metrics.md does not have %s", f.name)
		}
	}
}

func TestOnlyPod(t *testing.T) {
	tenant := func(pod, container string, gpus ...string) control.Tenant {
		one := control.Tenant{Namespace: "team", Container: container}
		if pod != "" {
			one.Pods = []string{pod}
		}
		for _, uuid := range gpus {
			one.Shares = append(one.Shares, control.Share{UUID: uuid})
		}
		return one
	}
	for name, c := range map[string]struct {
		tenants []control.Tenant
		want    string
	}{
		"nobody":                  {nil, "  "},
		"one pod":                 {[]control.Tenant{tenant("p", "main", "G")}, "team p main"},
		"on another GPU":          {[]control.Tenant{tenant("p", "main", "H")}, "  "},
		"two pods":                {[]control.Tenant{tenant("p", "main", "G"), tenant("q", "main", "G")}, "  "},
		"two containers of a pod": {[]control.Tenant{tenant("p", "main", "G"), tenant("p", "side", "G")}, "team p "},
		"a command beside a pod":  {[]control.Tenant{tenant("p", "main", "G"), tenant("", "", "G")}, "  "},
		"twice on the GPU":        {[]control.Tenant{tenant("p", "main", "G", "G")}, "team p main"},
	} {
		namespace, pod, container := onlyPod(&control.Listing{Tenants: c.tenants}, "G")
		if got := namespace + " " + pod + " " + container; got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
