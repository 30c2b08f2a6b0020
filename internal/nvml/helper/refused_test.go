package helper

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/divvy-gpu/divvy/internal/nvml"
)

// A GPU about which the driver answers with an error keeps no other from being served. It is left out, or served by what
// was known of it, and asked about again.
func TestStartWithRefusedGPU(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "gpus.json")
		m := newDouble(t, 3)
		refuse := func(err error, gpus ...int) {
			m.mu.Lock()
			defer m.mu.Unlock()
			for _, gpu := range gpus {
				m.faults[gpu] = err
			}
		}
		unknown := fmt.Errorf("%w: NVML result 999", nvml.ErrResult)
		refuse(unknown, 1)
		d := m.mustOpen("")
		if gpus, err := d.GPUs(); err != nil || len(gpus) != 2 || gpus[1].Index != 2 {
			t.Errorf("found %+v, %v", gpus, err)
		}
		if silent, answered := d.LeftOut(); !slices.Equal(silent, []int{1}) || len(answered) != 0 || !strings.Contains(d.Refused()[1], "result 999") {
			t.Errorf("left out are %v, answered %v, because %v", silent, answered, d.Refused())
		}
		for i, h := range d.Holdings(m.all()) {
			if (h.Unread != nil) != (i == 1) {
				t.Errorf("GPU %d: %v", i, h.Unread)
			}
		}
		refuse(nil, 1)
		time.Sleep(Usual.LongestPause + time.Second)
		if silent, answered := d.LeftOut(); len(silent) != 0 || !slices.Equal(answered, []int{1}) || len(d.Refused()) != 0 {
			t.Errorf("then left out are %v, answered %v, because %v", silent, answered, d.Refused())
		}
		m.close(d)

		m.close(m.mustOpen(path)) // which remembers all
		refuse(unknown, 1)
		d = m.mustOpen(path)
		if gpus, err := d.GPUs(); err != nil || len(gpus) != 3 || gpus[1].UUID != "GPU-1" || !gpus[1].Silent || gpus[2].Silent {
			t.Errorf("found %+v, %v", gpus, err)
		}
		if silent, answered := d.LeftOut(); len(silent)+len(answered)+len(d.Refused()) != 0 {
			t.Errorf("left out are %v and %v, which are served", silent, answered)
		}
		if err := d.Conditions([]int{1})[0].Err; !errors.Is(err, nvml.ErrResult) {
			t.Errorf("its condition: %v", err)
		}
		m.close(d)

		refuse(unknown, 0, 1, 2)
		if d, err := m.open(""); d != nil || !errors.Is(err, nvml.ErrResult) {
			t.Errorf("a driver that refuses all: %v", err)
		}
	})
}
