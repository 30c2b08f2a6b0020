package mig

import (
	"context"
	"fmt"

	"github.com/divvy-gpu/divvy/internal/nvml"
)

// ByIndex is the driver's library, which knows GPUs by their indexes: [nvml.Library], whose calls may never return, or
// who asks it in other processes.
type ByIndex interface {
	ReaderByIndex
	MakerByIndex
}

// ReaderByIndex tells about GPUs.
type ReaderByIndex interface {
	MIGMode(index int) (nvml.MIGMode, error)
	MIGProfiles(index int) ([]nvml.MIGProfile, error)
	MIGInstances(index int) ([]nvml.MIGInstance, error)
}

// MakerByIndex makes and takes away instances.
type MakerByIndex interface {
	CreateMIGInstance(index, profile int, at nvml.MIGPlacement) (int, error)
	DestroyMIGInstance(index, instance int) error
	CreateMIGCompute(index, instance int) (nvml.MIGCompute, error)
	DestroyMIGCompute(index, instance, compute int) error
}

// Library is a library that knows GPUs by their indexes as a [Driver].
type Library struct {
	NVML ByIndex
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
