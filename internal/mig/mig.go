// Package mig makes and takes back the instances of GPUs in MIG mode, and turns the mode on and off. Where an instance
// goes is decided by [github.com/divvy-gpu/divvy/internal/alloc/mig].
//
// What Divvy uses is a GPU instance with one compute instance that fills it. The two are made one after the other, and a
// book says which of them are Divvy's: an entry is written before anything is made and crossed out after it is gone. An
// agent that ends between any two steps thus leaves a book from which the next one knows what to finish. Instances that
// are not in the book belong to somebody else. They are listed and never changed.
package mig

import (
	"context"
	"errors"

	"github.com/divvy-gpu/divvy/internal/nvml"
)

// The errors of this package. Those of the driver are package nvml's.
var (
	// ErrMode says that the GPU is not in MIG mode.
	ErrMode = errors.New("the GPU is not in MIG mode")
	// ErrOccupied marks memory slices that another instance has.
	ErrOccupied = errors.New("no room for the MIG instance")
	// ErrForeign marks an instance that somebody else made.
	ErrForeign = errors.New("the MIG instance is not ours")
	// ErrUsed marks a GPU that has to keep its mode because something uses it.
	ErrUsed = errors.New("in use")
	// ErrReset says that the mode would change at the next reset of the GPU only.
	ErrReset = errors.New("the GPU needs a reset to change its MIG mode")
)

// overlap reports whether both placements have a memory slice.
func overlap(p, o nvml.MIGPlacement) bool {
	return p.Start < o.Start+o.Size && o.Start < p.Start+p.Size
}

// Reader tells about GPUs, which UUIDs name.
type Reader interface {
	MIGMode(ctx context.Context, gpu string) (nvml.MIGMode, error)
	// MIGProfiles are those of a GPU in MIG mode.
	MIGProfiles(ctx context.Context, gpu string) ([]nvml.MIGProfile, error)
	// MIGInstances are all of a GPU, whoever made them.
	MIGInstances(ctx context.Context, gpu string) ([]nvml.MIGInstance, error)
}

// Maker makes and takes away instances.
type Maker interface {
	// CreateMIGInstance returns the new GPU instance's ID.
	CreateMIGInstance(ctx context.Context, gpu string, profile int, at nvml.MIGPlacement) (id int, err error)
	DestroyMIGInstance(ctx context.Context, gpu string, id int) error
	// CreateMIGCompute makes the compute instance that fills a GPU instance.
	CreateMIGCompute(ctx context.Context, gpu string, instance int) (nvml.MIGCompute, error)
	DestroyMIGCompute(ctx context.Context, gpu string, instance, id int) error
}

// Driver is what the driver's library can do about instances.
type Driver interface {
	Reader
	Maker
}
