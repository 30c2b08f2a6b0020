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
)

// The errors of this package.
var (
	// ErrMode says that the GPU is not in MIG mode.
	ErrMode = errors.New("the GPU is not in MIG mode")
	// ErrProfile marks a profile that the GPU does not have.
	ErrProfile = errors.New("no such MIG profile")
	// ErrOccupied marks memory slices that another instance has, or a profile of which the GPU can have no more.
	ErrOccupied = errors.New("no room for the MIG instance")
	// ErrBusy marks an instance, or a GPU, that a process uses.
	ErrBusy = errors.New("in use")
	// ErrForeign marks an instance that somebody else made.
	ErrForeign = errors.New("the MIG instance is not ours")
	// ErrVanished marks an instance that somebody else took away.
	ErrVanished = errors.New("the MIG instance is gone")
	// ErrReset says that the mode would change at the next reset of the GPU only.
	ErrReset = errors.New("the GPU needs a reset to change its MIG mode")
)

// Placement is where a GPU instance lies, in memory slices.
type Placement struct {
	Start int `json:"start"`
	Size  int `json:"size"`
}

// overlaps reports whether both have a memory slice.
func (p Placement) overlaps(o Placement) bool {
	return p.Start < o.Start+o.Size && o.Start < p.Start+p.Size
}

// Profile is a kind of GPU instance that a GPU can have.
type Profile struct {
	// ID is the driver's number of it.
	ID int
	// Name is the driver's, such as "1g.10gb".
	Name string
	// Bytes is the memory of an instance.
	Bytes uint64
	// Placements are those in which an instance can lie.
	Placements []Placement
	// Compute is the number of the compute instance profile that fills an instance.
	Compute int
}

// Instance is a GPU instance.
type Instance struct {
	// ID is the driver's number of it, unique on its GPU.
	ID int
	// Profile is the driver's number of its profile.
	Profile   int
	Placement Placement
	Compute   []Compute
}

// Compute is a compute instance, which programs know as a MIG device.
type Compute struct {
	// ID is the driver's number of it, unique in its GPU instance.
	ID   int
	UUID string
}

// Mode is whether a GPU is in MIG mode, and whether it will be after its next reset.
type Mode struct{ Current, Pending bool }

// Reader tells about GPUs, which UUIDs name.
type Reader interface {
	Mode(ctx context.Context, gpu string) (Mode, error)
	// Profiles are those of a GPU in MIG mode.
	Profiles(ctx context.Context, gpu string) ([]Profile, error)
	// Instances are all of a GPU, whoever made them.
	Instances(ctx context.Context, gpu string) ([]Instance, error)
}

// Maker makes and takes away instances. Its errors are those of this package where they say why.
type Maker interface {
	// CreateInstance returns the new GPU instance's ID.
	CreateInstance(ctx context.Context, gpu string, profile int, at Placement) (id int, err error)
	DestroyInstance(ctx context.Context, gpu string, id int) error
	CreateCompute(ctx context.Context, gpu string, instance, profile int) (Compute, error)
	DestroyCompute(ctx context.Context, gpu string, instance, id int) error
}

// Driver is what the driver's library can do about instances.
type Driver interface {
	Reader
	Maker
}
