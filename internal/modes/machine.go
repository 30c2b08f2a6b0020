package modes

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/divvy-gpu/divvy/internal/nvml"
	"github.com/divvy-gpu/divvy/internal/process"
)

// NVML is the part of the driver's library that a [Machine] asks, about GPUs by index.
type NVML interface {
	Holdings(gpus []int) []nvml.Holding
	ComputeMode(gpu int) (string, error)
	SetComputeMode(gpu int, mode string) error
}

// Machine is the [Device] of a machine with NVIDIA's driver.
type Machine struct {
	// Index returns the index of a GPU with a UUID, -1 if there is none.
	Index func(uuid string) int
	NVML  NVML
	// Tool sets the length of time slices, for which NVML has no function.
	Tool Tool
}

// Mode implements [Device].
func (m *Machine) Mode(ctx context.Context, gpu string, mode Mode) (string, error) {
	index, err := m.index(gpu)
	if err != nil {
		return "", err
	}
	if mode == TimeSlice {
		return m.Tool.slice(ctx, gpu)
	}
	value, err := m.NVML.ComputeMode(index)
	if errors.Is(err, nvml.ErrNotSupported) {
		return "", ErrUnknown
	}
	return value, err
}

// SetMode implements [Device].
func (m *Machine) SetMode(ctx context.Context, gpu string, mode Mode, value string) error {
	index, err := m.index(gpu)
	if err != nil {
		return err
	}
	if mode == TimeSlice {
		return m.Tool.setSlice(ctx, gpu, value)
	}
	return m.NVML.SetComputeMode(index, value)
}

// Users implements [Device].
func (m *Machine) Users(_ context.Context, gpu string) ([]User, error) {
	index, err := m.index(gpu)
	if err != nil {
		return nil, err
	}
	holding := m.NVML.Holdings([]int{index})[0]
	if holding.Unlisted != nil {
		return nil, holding.Unlisted
	}
	users := make([]User, 0, len(holding.Processes))
	for _, p := range holding.Processes {
		u := User{PID: p.PID, Name: process.Command(p.PID)}
		if uid := process.Owner(p.PID); uid >= 0 {
			u.Owner = process.UserName(uid)
		}
		users = append(users, u)
	}
	slices.SortFunc(users, func(x, y User) int { return x.PID - y.PID })
	return users, nil
}

// errGone is returned for a GPU that is not there.
var errGone = errors.New("the GPU is not on this machine")

func (m *Machine) index(gpu string) (int, error) {
	index := m.Index(gpu)
	if index < 0 {
		return 0, fmt.Errorf("%s: %w", gpu, errGone)
	}
	return index, nil
}
