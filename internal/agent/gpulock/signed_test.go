package gpulock

import (
	"os"
	"testing"

	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/process/processtest"
)

// The sign of a share in another network namespace tells of its process too.
func TestSignedApart(t *testing.T) {
	if tenant := os.Getenv("GPULOCK_TEST_SIGNED"); tenant != "" {
		if err := Simulated.Sign("GPU-1", tenant); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stdout.WriteString(processtest.Ready); err != nil {
			t.Fatal(err)
		}
		_, _ = os.Stdin.Read(make([]byte, 1)) // until its end
		return
	}
	const tenant = "0123456789abcdef"
	other, _ := processtest.Again(t, "TestSignedApart", "GPULOCK_TEST_SIGNED="+tenant)
	id, err := process.Find(other.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	self, err := process.Find(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	signs := Signed(tenant, []process.ID{self, id})
	if len(signs) != 1 || !process.HasOpen(id.PID, signs) || process.HasOpen(self.PID, signs) {
		t.Errorf("the signs are %v", signs)
	}
	if other := Signed("fedcba9876543210", []process.ID{self, id}); len(other) != 0 {
		t.Errorf("the signs of another are %v", other)
	}
}
