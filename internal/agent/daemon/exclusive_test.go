package daemon

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestTwoAgentsNeverServeOneGPU(t *testing.T) {
	uuid := "GPU-" + t.Name() + "-" + filepath.Base(t.TempDir()) + time.Now().Format("150405.000000000")
	locks, err := lockGPUs(t.Context(), []string{uuid})
	if err != nil {
		t.Fatal(err)
	}
	_, err = lockGPUs(t.Context(), []string{uuid + "-free", uuid})
	if !errors.Is(err, ErrServed) || !strings.Contains(err.Error(), "another run directory") {
		t.Errorf("%v, want ErrServed and who it is", err)
	}
	free, err := lockGPUs(t.Context(), []string{uuid + "-free"})
	if err != nil {
		t.Errorf("a failed attempt keeps a GPU: %v", err)
	}
	free.unlock()
	locks.unlock()
	again, err := lockGPUs(t.Context(), []string{uuid})
	if err != nil {
		t.Fatal(err)
	}
	again.unlock()
}
