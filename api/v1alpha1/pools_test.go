package v1alpha1_test

import (
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// A pool of GPUs that others reach names its host, and no node's own pool does.
func TestRemotePool(t *testing.T) {
	for pool, want := range map[string]string{
		v1alpha1.RemotePool("gpu-1.example.org"): "gpu-1.example.org", "gpu-1": "", "remote": "", "remote/": "", "remote-gpu-1": "",
		"remote/a/b": "", "other/remote/a": "",
	} {
		if node, ok := v1alpha1.HostOfPool(pool); ok != (want != "") || ok && node != want {
			t.Errorf("pool %q is of host %q, %v, want %q", pool, node, ok, want)
		}
	}
}
