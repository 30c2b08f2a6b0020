package replay

import (
	"errors"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/alloc"
)

const (
	nodeFile = "sn,cpu_milli,memory_mib,gpu,model\na,64000,262144,2,T4\nb,96000,393216,8,G2\n"
	podFile  = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\np0,4000,1024,1,500,\np1,8000,1024,2,1000,T4|G2\np2,1000,1024,0,0,\n"
)

func readNodes(t testing.TB, text string) []alloc.Node {
	t.Helper()
	nodes, err := ReadNodes("nodes.csv", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return nodes
}

func TestReadOpenb(t *testing.T) {
	nodes := readNodes(t, nodeFile)
	if len(nodes) != 2 || len(nodes[1].GPUs) != 8 || nodes[1].GPUs[0].Model != "G2" || nodes[0].CPU != 64000 {
		t.Errorf("nodes %+v", nodes)
	}
	pods, err := ReadPods("pods.csv", strings.NewReader(podFile), nodes)
	if err != nil {
		t.Fatal(err)
	}
	if len(pods) != 3 || pods[0].Milli != 500 || pods[1].Milli != 2000 || !pods[1].Request.Whole || pods[2].Milli != 0 {
		t.Errorf("pods %+v", pods)
	}
}

func TestReadOwn(t *testing.T) {
	nodes := readNodes(t, "name,cpu_milli,memory_mib,gpus,gpu_model,gpu_memory_mib\na,64000,262144,2,A100,81920\n")
	pods, err := ReadPods("pods.csv", strings.NewReader("name,cpu_milli,memory_mib,gpus,gpu_memory,gpu_cores\np,1000,1024,1,20Gi,40\nq,0,0,2,,\nr,0,0,1,50%,\n"), nodes)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int64{400, 2000, 500} {
		if pods[i].Milli != want {
			t.Errorf("pod %d asks for %d thousandths, want %d", i, pods[i].Milli, want)
		}
	}
}

func TestFaultsNameTheirPlace(t *testing.T) {
	nodes := readNodes(t, nodeFile)
	const header = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"
	for _, test := range []struct {
		name, text, column string
		line               int
	}{
		{"empty", "", "", 1},
		{"other table", "a,b\n", "", 1},
		{"unknown column", "name,cpu_milli,memory_mib,num_gpu,gpu_milli,colour\n", "colour", 1},
		{"column twice", "name,name,cpu_milli,memory_mib,num_gpu,gpu_milli\n", "name", 1},
		{"missing column", "name,cpu_milli,num_gpu,gpu_milli\n", "memory_mib", 1},
		{"truncated row", header + "p,1,1,1,1000,\nq,1,1\n", "", 3},
		{"negative", header + "p,-1,1,1,1000,\n", "cpu_milli", 2},
		{"overflow", header + "p,1,99999999999999999999999,1,1000,\n", "memory_mib", 2},
		{"beyond bounds", header + "p,1,1,17,1000,\n", "num_gpu", 2},
		{"no number", header + "p,1,1,one,1000,\n", "num_gpu", 2},
		{"part of several", header + "p,1,1,2,500,\n", "gpu_milli", 2},
		{"part of none", header + "p,1,1,0,500,\n", "gpu_milli", 2},
		{"duplicate", header + "p,1,1,1,1000,\np,1,1,1,1000,\n", "name", 3},
		{"no name", header + ",1,1,1,1000,\n", "name", 2},
		{"model nobody has", header + "p,1,1,1,1000,T4|H900\n", "gpu_spec", 2},
		{"quote left open", header + "\"p,1,1,1,1000,\n", "", 2},
		{"enormous field", header + strings.Repeat("p", maxField+1) + ",1,1,1,1000,\n", "", 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := ReadPods("pods.csv", strings.NewReader(test.text), nodes)
			var fault *FieldError
			if !errors.As(err, &fault) || fault.File != "pods.csv" || fault.Column != test.column {
				t.Fatalf("error %v", err)
			}
			if fault.Line != test.line && test.name != "quote left open" {
				t.Errorf("line %d, want %d: %v", fault.Line, test.line, err)
			}
		})
	}
}

func FuzzReadNodes(f *testing.F) {
	f.Add(nodeFile)
	f.Add("name,cpu_milli,memory_mib,gpus,gpu_model,gpu_memory_mib\na,1,1,1,A,1\n")
	f.Fuzz(func(t *testing.T, text string) {
		nodes, err := ReadNodes("f", strings.NewReader(text))
		var fault *FieldError
		if err != nil && !errors.As(err, &fault) {
			t.Fatalf("%v has no place", err)
		}
		if err != nil {
			return
		}
		policy, _ := alloc.PolicyNamed(alloc.DefaultPolicy)
		if _, err := alloc.NewInventory(nodes, policy); err != nil {
			t.Fatalf("nodes that were read are refused: %v", err)
		}
	})
}

func FuzzReadPods(f *testing.F) {
	f.Add(podFile)
	f.Add("name,cpu_milli,memory_mib,gpus,gpu_memory,gpu_cores\np,1000,1024,1,20Gi,40\n")
	f.Add(compress(f, podFile))
	f.Fuzz(func(t *testing.T, text string) {
		pods, err := ReadPods("f", strings.NewReader(text), readNodes(t, nodeFile))
		var fault *FieldError
		if err != nil && !errors.As(err, &fault) {
			t.Fatalf("%v has no place", err)
		}
		for i := range pods {
			if pods[i].Milli < 0 || pods[i].Request.Validate() != nil {
				t.Fatalf("pod %+v", pods[i])
			}
		}
	})
}
