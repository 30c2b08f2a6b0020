package cli

import (
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/page"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
)

// In a swap share it is told what is kept on the GPU, and the rest is what can be in host memory.
func TestInsideOfASwapShare(t *testing.T) {
	const uuid = "GPU-c962d5c2-ce7b-4555-8bd5-d347bdeed6ea"
	share := backend.Share{Limit: 12 << 30, Kept: 2 << 30, Policy: v1alpha1.PolicyWeighted, Class: v1alpha1.ClassOnline, Weight: 1}
	share.GPU.UUID = uuid
	wanted := backend.Tenant{
		ID: "0123456789abcdef", Name: "notebook", Layer: backend.LayerNamespace, Backend: v1alpha1.BackendSlice, Swap: true,
		Shares: []backend.Share{share},
	}
	config, err := tenantdir.Encode(wanted, 1)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := page.WriteConfig(tenantdir.Dir(dir).Config(), config, 0o600); err != nil {
		t.Fatal(err)
	}
	in := inside{dir: dir}
	got, check := in.share()
	if got == nil || !strings.Contains(check.Found, "12Gi of GPU "+uuid+" with swap, 2Gi of it kept there") {
		t.Fatalf("%+v", check)
	}
	if evictable(got) != 10<<30 {
		t.Errorf("%d bytes can leave the GPU", evictable(got))
	}
}
