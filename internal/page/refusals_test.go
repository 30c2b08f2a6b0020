package page

import (
	"math"
	"path/filepath"
	"testing"
)

// A page tells of its peak and refused allocations what the library wrote, whatever the numbers are.
func TestRefusals(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	writeState(t, path, func(data []byte) {
		gpu := data[SizeOfState+SizeOfGPU:]
		order.PutUint32(gpu[OffsetOfGPUPeak:], 7)
		order.PutUint32(gpu[OffsetOfGPURefused:], 3)
		order.PutUint32(gpu[OffsetOfGPURefusedByGPU:], math.MaxUint32)
		order.PutUint32(gpu[OffsetOfGPURefuser:], RefuserGPU)
		order.PutUint64(gpu[OffsetOfGPURefusedLargest:], math.MaxUint64)
		order.PutUint64(gpu[OffsetOfGPURefusedLast:], 4)
		order.PutUint64(gpu[OffsetOfGPURefusedAt:], 5)
	})
	s, err := ReadState(path, 2)
	if err != nil {
		t.Fatal(err)
	}
	want := Refusals{ByLimit: 3, ByGPU: math.MaxUint32, Largest: math.MaxUint64, Last: 4, At: 5, LastByGPU: true}
	if s.Usage[1].Peak != 7*Unit || s.Usage[1].Refusals != want || s.Usage[0].Refusals != (Refusals{}) {
		t.Errorf("%+v", s.Usage)
	}
}
