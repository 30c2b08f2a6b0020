package run

import (
	"encoding/binary"
	"os"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/page"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
)

// lie writes into a tenant's state page again and again, as its own processes
// could, until the test ends.
func lie(t *testing.T, dir string, words map[int]int64) {
	t.Helper()
	file, err := os.OpenFile(tenantdir.Dir(dir).State(), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(200 * time.Microsecond)
		defer ticker.Stop()
		for {
			for offset, value := range words {
				word := binary.LittleEndian.AppendUint64(nil, uint64(value))
				if _, err := file.WriteAt(word, int64(page.SizeOfState+page.OffsetOfGPUBucket+offset)); err != nil {
					return // the share has ended
				}
			}
			select {
			case <-ticker.C:
			case <-stop:
				return
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-stopped; file.Close() })
}

// The driver's own figures reveal a tenant that gives itself more time than it was
// granted.
func TestMisuseIsReported(t *testing.T) {
	for name, words := range map[string]map[int]int64{
		"a balance that never ends":     {page.OffsetOfBucketBalance: int64(10 * time.Millisecond)},
		"and nothing charged":           {page.OffsetOfBucketBalance: int64(10 * time.Millisecond), page.OffsetOfBucketCharged: 0},
		"refilled before time began":    {page.OffsetOfBucketBalance: int64(10 * time.Millisecond), page.OffsetOfBucketRefilled: 1},
		"corrected by more than it was": {page.OffsetOfBucketCorrected: -1 << 40},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			honest := h.work(append(fixed(50), "--name", "honest"))
			liar := h.work(append(fixed(20), "--name", "liar"))
			h.settled("20 and 50", func(p []float64) bool { return p[1] > 1.5*p[0] && p[0]+p[1] < 85 }, liar, honest)
			tenant, _ := h.tenant("liar")
			lie(t, tenant.Dir, words)
			since := time.Now()
			var told control.Event
			h.eventually("the misuse is reported", func() bool {
				for _, event := range h.list().Events {
					if event.Kind == control.EventMisuse && event.Tenant == "liar" {
						told = event
						return true
					}
				}
				return false
			})
			t.Logf("reported after %s: %s", told.Time.Sub(since).Round(time.Millisecond), told.Text)
			if good, ok := h.tenant("honest"); !ok || good.Fault != "" {
				t.Errorf("the neighbour is blamed: %+v", good)
			}
			// Without any action the hardware gives both equal slices.
			h.settled("beside the liar", func(p []float64) bool { return p[0] > 30 }, honest)
		})
	}
}
