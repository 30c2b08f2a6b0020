package tenantdir

import (
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/page"
)

// A share pays what its user's last one owes, also a swap share, which has two ledgers for each GPU.
func TestOweOfEachGPU(t *testing.T) {
	for _, swap := range []bool{false, true} {
		tenant := randomTenant(t, rand.New(rand.NewPCG(5, 6)))
		tenant.Backend, tenant.MPSPipe, tenant.Swap = v1alpha1.BackendSlice, "", swap
		tenant.Shares = tenant.Shares[:min(len(tenant.Shares), page.Devices/2)]
		for i := range tenant.Shares {
			tenant.Shares[i].Limit += 2 * page.Unit
			tenant.Shares[i].Owed = 5 * page.Start
			if swap {
				tenant.Shares[i].Kept = page.Unit
			}
		}
		c, err := Encode(tenant, 1)
		if err != nil {
			t.Fatal(err)
		}
		dir := Dir(filepath.Join(t.TempDir(), "tenant"))
		if err := dir.Make(&c, nil, AccessOwner, -1); err != nil {
			t.Fatal(err)
		}
		if err := dir.Owe(&c, tenant.Shares); err != nil {
			t.Errorf("swap %v: %v", swap, err)
		}
		times, err := page.OpenTimes(dir.State(), int(c.DeviceCount))
		if err != nil {
			t.Fatal(err)
		}
		for i := range tenant.Shares {
			if got, err := times.Read(i); err != nil || got.Bucket.Balance != -4*page.Start {
				t.Errorf("swap %v, GPU %d: balance %d, %v", swap, i, got.Bucket.Balance, err)
			}
		}
		times.Close()
	}
}
