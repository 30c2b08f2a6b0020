package turns

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/page"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
)

// BenchmarkLook is one look at shares of one GPU, of which one is there and the others wait.
func BenchmarkLook(b *testing.B) {
	for _, count := range []int{2, 16} {
		b.Run(fmt.Sprint(count, " shares"), func(b *testing.B) {
			now := uint64(1000 * time.Second)
			loop := New(Config{Log: slog.New(slog.DiscardHandler), Clock: func() uint64 { return now }})
			var members []Member
			for i := range count {
				id := fmt.Sprint("t", i)
				m := Member{Tenant: backend.Tenant{ID: id, Dir: filepath.Join(b.TempDir(), id), UID: -1, Swap: true, Backend: v1alpha1.BackendSlice, Layer: backend.LayerNamespace}, Source: &tenantdir.Tenants{}}
				m.Shares = []backend.Share{{GPU: backend.GPU{UUID: firstID, Total: 64 * gib}, Limit: 32 * gib, Kept: gib, Weight: 1, Policy: v1alpha1.PolicyWeighted, Class: v1alpha1.ClassOffline}}
				c, err := tenantdir.Encode(m.Tenant, 0)
				if err == nil {
					err = tenantdir.Dir(m.Dir).Make(&c, nil, tenantdir.AccessOwner, -1)
				}
				if err != nil {
					b.Fatal(err)
				}
				p := writer(b, m)
				p(page.OffsetOfStateSlotCount, 1)
				p(page.SizeOfState+page.OffsetOfGPUAmounts, uint64(10*gib/page.Unit))
				p(page.SizeOfState+page.OffsetOfGPUPresent+page.OffsetOfPresentWaits, now)
				members = append(members, m)
			}
			loop.Publish(members, map[string]uint64{firstID: 16 * gib})
			for b.Loop() {
				now += uint64(busyTick)
				loop.decide(b.Context())
			}
		})
	}
}

// writer holds a tenant's first slot, and writes words of its state page.
func writer(b *testing.B, m Member) func(at int64, value uint64) {
	b.Helper()
	file, err := os.OpenFile(tenantdir.Dir(m.Dir).State(), os.O_RDWR, 0)
	if err == nil {
		err = unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Start: page.LockBase, Len: 1})
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { file.Close() })
	return func(at int64, value uint64) {
		if _, err := file.WriteAt(binary.LittleEndian.AppendUint64(nil, value), at); err != nil {
			b.Error(err)
		}
	}
}
