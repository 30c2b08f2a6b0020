package replay

import (
	"context"
	"errors"
	"strings"
	"testing"
)

const (
	migNodes = "name,cpu_milli,memory_mib,gpus,gpu_model,gpu_memory_mib,gpu_mig\n" +
		"a,64000,262144,2,H100,81920,\"1g.10gb 0-6:1; 3g.40gb 0,4:4; 7g.80gb 0:8\"\nb,64000,262144,1,A100,40960,\n"
	migHeader = "name,cpu_milli,memory_mib,gpus,gpu_memory,gpu_cores,gpu_profile\n"
)

// Requests for MIG profiles go to GPUs that have them, and count with their memory slices.
func TestReplayOfMIG(t *testing.T) {
	trace := &Trace{Nodes: readNodes(t, migNodes)}
	pods, err := ReadPods("pods.csv", strings.NewReader(migHeader+"small,0,0,1,,,1g.10gb\nlarge,0,0,1,,,3g.40gb\nshare,0,0,1,10Gi,,\nboth,0,0,2,,,3g.40gb\n"), trace.Nodes)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int64{125, 500, 125, 1000} {
		if pods[i].Milli != want {
			t.Errorf("pod %s is %d thousandths, want %d", pods[i].Name, pods[i].Milli, want)
		}
	}
	trace.Pods = pods
	for _, policy := range []string{"adaptive", "bestfit", "fgd"} {
		result, err := trace.Run(context.Background(), Options{Policy: policy, Seed: 1, Until: 300})
		if err != nil {
			t.Fatal(err)
		}
		if at := result.Curve[len(result.Curve)-1].Allocated; at < 70 || at > 100 || result.Refused == 0 {
			t.Errorf("%s: allocated %.1f %%, %d of %d refused", policy, at, result.Refused, result.Decisions)
		}
		churned, err := trace.Churn(context.Background(), ChurnOptions{Policy: policy, Seed: 1, Load: 90, Events: 500})
		if err != nil || churned.Arrivals == 0 || churned.Refused == churned.Arrivals {
			t.Errorf("%s: %+v, %v", policy, churned, err)
		}
	}
}

func TestFaultsOfMIG(t *testing.T) {
	nodes := readNodes(t, migNodes)
	for row, want := range map[string]string{
		"p,0,0,1,,,2g.20gb":       "no node has the profile",
		"p,0,0,1,10Gi,,1g.10gb":   "beside gpu_memory",
		"p,0,0,1,,10,1g.10gb":     "beside gpu_profile",
		"p,0,0,0,,,1g.10gb":       "asks for no GPU",
		"p,0,0,1,,,1g.10gb|1g.20": "no node has the profile",
	} {
		var fault *FieldError
		if _, err := ReadPods("pods.csv", strings.NewReader(migHeader+row+"\n"), nodes); !errors.As(err, &fault) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", row, err, want)
		}
	}
	var fault *FieldError
	_, err := ReadNodes("nodes.csv", strings.NewReader(strings.Replace(migNodes, "0-6:1", "0-6", 1)))
	if !errors.As(err, &fault) || fault.Column != "gpu_mig" || fault.Line != 2 {
		t.Errorf("placements without a size: %v", err)
	}
}
