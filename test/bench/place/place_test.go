package main

import "testing"

// The benchmark reads the traces of a fresh clone, whole.
func TestTracesOfTheRepository(t *testing.T) {
	b := &bench{data: "../../../testdata/openb"}
	for name, pods := range map[string]int{
		"default": 8152, "gpushare40": 8152, "multigpu20": 8324, "cpu050": 7439, "gpuspec10": 8152,
	} {
		trace, err := b.trace(name)
		if err != nil {
			t.Error(err)
			continue
		}
		if len(trace.Nodes) != 1213 || trace.GPUs() != 6212 || len(trace.Pods) != pods {
			t.Errorf("%s: %d nodes with %d GPUs, %d pods; want 1213 with 6212, %d",
				name, len(trace.Nodes), trace.GPUs(), len(trace.Pods), pods)
		}
	}
	for _, name := range traces {
		if _, ok := published[name]; !ok {
			t.Errorf("trace %s has no published figures", name)
		}
	}
}
