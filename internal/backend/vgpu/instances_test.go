package vgpu_test

import (
	"context"
	"fmt"
	"math/bits"
	"os"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/internal/checkpoint"
	"github.com/divvy-gpu/divvy/internal/pci"
)

// instances are GPU instances as the stand-in for the host driver has them: bits of a file. The numbers of those that are made
// here are below 32; a test makes others' above. It keeps a book in the way of internal/mig.
type instances struct {
	file *checkpoint.File[[]instance]
	all  []instance
	step func(string)
}

type instance struct {
	Owner string `json:"owner"`
	GPU   string `json:"gpu"`
	ID    int    `json:"id"`
}

func openInstances(path string, step func(string)) (*instances, error) {
	i := &instances{file: checkpoint.NewFile[[]instance](path, "instances", 1), step: step}
	var err error
	i.all, err = i.file.Load()
	return i, err
}

func (i *instances) save(all []instance) error {
	i.all = all
	err := i.file.Save(all)
	i.step("instance")
	return err
}

func change(gpu string, to func(uint64) uint64) error {
	path := "/sys/bus/pci/devices/" + gpu + "/double/instances"
	text, err := os.ReadFile(path) //nolint:gosec // sysfs of the guest
	if err != nil {
		return err
	}
	old, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil || to(old) == old {
		return err
	}
	return os.WriteFile(path, []byte(strconv.FormatUint(to(old), 10)), 0o600)
}

// Make implements Instances.
func (i *instances) Make(_ context.Context, gpu pci.Address, profile, owner string) (int, error) {
	if profile != "1g.5gb" {
		return 0, fmt.Errorf("no profile %s", profile)
	}
	one := instance{Owner: owner, GPU: gpu.String(), ID: -1}
	var used uint32
	for _, other := range i.all {
		if other.Owner == owner {
			one = other
		}
		used |= 1 << other.ID
	}
	if one.ID < 0 {
		one.ID = bits.TrailingZeros32(^used)
		if err := i.save(append(i.all, one)); err != nil {
			return 0, err
		}
	}
	err := change(one.GPU, func(old uint64) uint64 { return old | 1<<one.ID })
	i.step("made")
	return one.ID, err
}

// Take implements Instances.
func (i *instances) Take(_ context.Context, owner string) error {
	var rest []instance
	for _, one := range i.all {
		if one.Owner != owner {
			rest = append(rest, one)
			continue
		}
		if err := change(one.GPU, func(old uint64) uint64 { return old &^ (1 << one.ID) }); err != nil {
			return err
		}
		i.step("taken")
	}
	if len(rest) == len(i.all) {
		return nil
	}
	return i.save(rest)
}

// Owners implements Instances.
func (i *instances) Owners() (all []string) {
	for _, one := range i.all {
		all = append(all, one.Owner)
	}
	return all
}

// judgeInstances compares the GPU instances that there are with those behind what owners have.
func (w *world) judgeInstances() {
	for _, s := range w.sites {
		if !s.backed {
			continue
		}
		want := uint64(othersInstances)
		for _, place := range w.claims {
			kind, id, is := strings.Cut(w.made[place], " ")
			if number, err := strconv.Atoi(id); is && kind == "475" && err == nil {
				want |= 1 << number
			}
		}
		if found := s.gpu.Read("double/instances"); found != strconv.FormatUint(want, 10) {
			w.left++
			w.t.Errorf("op %d: %s has the instances %s, want %d", w.ops, s.gpu, found, want)
		}
	}
}
