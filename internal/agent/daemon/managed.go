package daemon

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/internal/backend"
)

// managed is what the driver tells of managed memory. It is asked once, because its answer does not change while it is loaded;
// but CUDA does not show a GPU in MIG mode, so it is asked anew about such a GPU that has left the mode, and after no answer.
type managed struct {
	// ask are the UUIDs of the GPUs to which the driver brings memory that a kernel touches.
	ask func() ([]string, error)
	// inMIGMode are the UUIDs of the GPUs that are in MIG mode now.
	inMIGMode func() map[string]bool
	// capability is the compute capability of a GPU, "" if it is not known.
	capability func(gpu backend.GPU) string

	mu       sync.Mutex // guards what follows
	told     bool       // it has answered
	faulting []string
	unseen   map[string]bool // the GPUs that CUDA may not have shown
	asking   bool
	err      error     // why it did not answer the last time
	due      time.Time // it is not asked before
	learned  chan struct{}
}

// askAgain is how long a driver that did not answer is left alone.
const askAgain = 10 * time.Second

// look asks the driver. What it has told stays known when it does not answer.
func (m *managed) look() {
	unseen := map[string]bool{}
	maps.Copy(unseen, m.inMIGMode())
	faulting, err := m.ask()
	maps.Copy(unseen, m.inMIGMode()) // a GPU may have changed its mode meanwhile
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asking, m.err = false, err
	if err != nil {
		m.due = time.Now().Add(askAgain)
		return
	}
	m.told, m.faulting, m.unseen = true, faulting, unseen
	if m.learned != nil {
		close(m.learned)
		m.learned = nil
	}
}

// why is why a GPU that is not in MIG mode can have no swap shares, "" where it can, and a channel that is closed when the driver
// has told more. It waits for no driver.
func (m *managed) why(gpu backend.GPU) (why string, learned <-chan struct{}) {
	capability := m.capability(gpu)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.learned == nil {
		m.learned = make(chan struct{})
	}
	return m.known(gpu, capability), m.learned
}

// known is why a GPU can have no swap shares, by what the driver has told, which it is asked anew if it has not told of the GPU.
// Callers hold the lock.
func (m *managed) known(gpu backend.GPU, capability string) string {
	if m.told && !m.unseen[gpu.UUID] {
		return whyNotSwapped(capability, gpu.UUID, m.faulting, nil)
	}
	if !m.asking && !time.Now().Before(m.due) {
		m.asking = true
		go m.look()
	}
	if m.err != nil {
		return whyNotSwapped(capability, gpu.UUID, nil, m.err)
	}
	return "it has left MIG mode, and its driver is being asked whether it brings memory that a program touches: try again"
}

// managedMemory asks the driver for the first time.
func (s *service) managedMemory(ctx context.Context) *managed {
	m := &managed{
		ask:        func() ([]string, error) { return s.faulting(ctx) },
		inMIGMode:  s.inMIGMode,
		capability: s.capabilities(),
	}
	m.look()
	return m
}

// inMIGMode are the UUIDs of the GPUs that are in MIG mode.
func (s *service) inMIGMode() map[string]bool {
	in := map[string]bool{}
	gpus, err := s.library.GPUs()
	if err != nil { // what is not known is asked of CUDA
		return in
	}
	for _, gpu := range gpus {
		if mode, err := s.library.MIGMode(gpu.Index); err == nil && mode.Current {
			in[gpu.UUID] = true
		}
	}
	return in
}

// capabilities are the compute capabilities of the GPUs by their UUIDs.
func (s *service) capabilities() func(gpu backend.GPU) string {
	known := map[string]string{}
	if gpus, err := s.library.GPUs(); err == nil {
		for _, gpu := range gpus {
			known[gpu.UUID] = s.library.Capability(gpu.Index)
		}
	}
	return func(gpu backend.GPU) string { return known[gpu.UUID] }
}
