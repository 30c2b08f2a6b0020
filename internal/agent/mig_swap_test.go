package agent

import (
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/alloc/forms"
	"github.com/divvy-gpu/divvy/internal/backend"
)

// Nothing leaves a GPU in MIG mode, and that is said, not what CUDA tells of a GPU that it does not show in that mode. Other GPUs
// serve a request that names none.
func TestNothingLeavesInMIGMode(t *testing.T) {
	q := newQuarry(t)
	c := q.configured("")
	c.SwapMemory = 64 * gib
	c.Unswappable = func(gpu backend.GPU) (string, <-chan struct{}) {
		if gpu.UUID == firstID {
			return "its driver does not bring memory that a program touches", nil
		}
		return "", nil
	}
	r := q.startAs(c)
	const text = "GPU 0: it is in MIG mode, and the driver moves no memory of MIG instances to the host: leave out --"
	for flag, p := range map[string]control.CreateParams{"swap": swap("0", 8*gib, 0), "suspend-after": suspending("0", 8*gib)} {
		if got, code := q.refusal(r, 0, p); code != control.CodeInvalid || !strings.Contains(got, text+flag+", or name other GPUs") {
			t.Errorf("%s: %q (%s)", flag, got, code)
		}
		verdicts, _ := q.explained(r, 0, p)
		if v := verdicts[v1alpha1.BackendSlice]; v.State != forms.Never || !strings.Contains(v.Reason, text+flag) {
			t.Errorf("%s is explained as %+v", flag, v)
		}
		p.Request.Among = nil
		if got := q.grant(r, q.asker(0), p).Tenant.Shares[0].Index; got != 1 {
			t.Errorf("%s on any GPU is on GPU %d", flag, got)
		}
	}
	wanted := Tenancy{Key: "a", Name: "ns/a", Shares: []TenancyShare{{UUID: firstID, Memory: 8 * gib, Config: v1alpha1.ShareConfig{Swap: true}}}}
	if _, err := r.Prepare(t.Context(), wanted); err == nil || !strings.Contains(err.Error(), inMIGMode) {
		t.Errorf("a claim: %v", err)
	}
}
