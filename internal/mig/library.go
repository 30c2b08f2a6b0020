package mig

import (
	"context"
	"fmt"

	"github.com/divvy-gpu/divvy/internal/nvml"
)

// Library is an open NVML as a [Driver]. Its calls may never return.
type Library struct {
	NVML *nvml.Library
	// Index are the GPUs' indexes by UUID.
	Index map[string]int
}

func (l Library) index(gpu string) (int, error) {
	index, ok := l.Index[gpu]
	if !ok {
		return 0, fmt.Errorf("%w: %s", nvml.ErrVanished, gpu)
	}
	return index, nil
}

// MIGMode implements [Reader].
func (l Library) MIGMode(_ context.Context, gpu string) (nvml.MIGMode, error) {
	index, err := l.index(gpu)
	if err != nil {
		return nvml.MIGMode{}, err
	}
	return l.NVML.MIGMode(index)
}

// SetMIGMode asks for a mode, see [Switch].
func (l Library) SetMIGMode(_ context.Context, gpu string, on bool) error {
	index, err := l.index(gpu)
	if err != nil {
		return err
	}
	return l.NVML.SetMIGMode(index, on)
}

// MIGProfiles implements [Reader].
func (l Library) MIGProfiles(_ context.Context, gpu string) ([]nvml.MIGProfile, error) {
	index, err := l.index(gpu)
	if err != nil {
		return nil, err
	}
	return l.NVML.MIGProfiles(index)
}

// MIGInstances implements [Reader].
func (l Library) MIGInstances(_ context.Context, gpu string) ([]nvml.MIGInstance, error) {
	index, err := l.index(gpu)
	if err != nil {
		return nil, err
	}
	return l.NVML.MIGInstances(index)
}

// CreateMIGInstance implements [Maker].
func (l Library) CreateMIGInstance(_ context.Context, gpu string, profile int, at nvml.MIGPlacement) (int, error) {
	index, err := l.index(gpu)
	if err != nil {
		return 0, err
	}
	return l.NVML.CreateMIGInstance(index, profile, at)
}

// DestroyMIGInstance implements [Maker].
func (l Library) DestroyMIGInstance(_ context.Context, gpu string, id int) error {
	index, err := l.index(gpu)
	if err != nil {
		return err
	}
	return l.NVML.DestroyMIGInstance(index, id)
}

// CreateMIGCompute implements [Maker].
func (l Library) CreateMIGCompute(_ context.Context, gpu string, instance int) (nvml.MIGCompute, error) {
	index, err := l.index(gpu)
	if err != nil {
		return nvml.MIGCompute{}, err
	}
	return l.NVML.CreateMIGCompute(index, instance)
}

// DestroyMIGCompute implements [Maker].
func (l Library) DestroyMIGCompute(_ context.Context, gpu string, instance, id int) error {
	index, err := l.index(gpu)
	if err != nil {
		return err
	}
	return l.NVML.DestroyMIGCompute(index, instance, id)
}
