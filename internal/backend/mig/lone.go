package mig

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/mig"
	"github.com/divvy-gpu/divvy/internal/nvml"
	"github.com/divvy-gpu/divvy/internal/nvml/helper"
	"github.com/divvy-gpu/divvy/internal/process"
)

// Lone is the [Switcher] of a machine whose driver is asked by helpers.
type Lone struct {
	Driver *helper.Driver
	// Holding is the file that every process has open which holds the GPU with a PCI address.
	Holding func(pci string) (string, error)
}

// Alone implements [Switcher].
func (l Lone) Alone(gpu backend.GPU, do func(mig.Switch) error) error {
	return l.Driver.Alone(gpu.Index, func(lone helper.Lone) error {
		return do(loneSwitch{lone, func() ([]string, error) { return l.users(gpu) }})
	})
}

// users name who holds a GPU besides the agent and its helpers, whether or not they run programs there.
func (l Lone) users(gpu backend.GPU) (names []string, err error) {
	holders, cut, err := l.holders(gpu)
	if err != nil {
		return nil, err
	}
	return others(holders, cut)
}

// others names the holders that are not the agent and its helpers. Where there are none, nobody else may have been cut off.
func others(holders, cut []process.ID) (names []string, err error) {
	if names = foreign(holders); len(names) > 0 {
		return names, nil
	}
	if unseen := foreign(cut); len(unseen) > 0 {
		return nil, fmt.Errorf("see what processes have open: these could not be looked through in time, so try again: %s", strings.Join(unseen, ", "))
	}
	return nil, nil
}

// foreign names processes besides the agent and its helpers. One that has ended meanwhile holds nothing, and may have been a helper.
func foreign(ids []process.ID) (names []string) {
	for _, id := range ids {
		name, ours := nameOf(id), id.PID == os.Getpid() || slices.Contains(process.Ancestors(id.PID), os.Getpid())
		if !ours && id.Alive() {
			names = append(names, name)
		}
	}
	return names
}

func (l Lone) holders(gpu backend.GPU) (by, cut []process.ID, err error) {
	path, err := l.Holding(gpu.PCI)
	if err != nil {
		return nil, nil, err
	}
	by, cut, err = process.Holders(path)
	if err != nil {
		return nil, nil, fmt.Errorf("see who has %s open: %w", path, err)
	}
	return by, cut, nil
}

// nameOf is such as "nv-hostengine (pid 1234, root)".
func nameOf(id process.ID) string {
	text := fmt.Sprintf("%s (pid %d", process.Command(id.PID), id.PID)
	if uid := process.Owner(id.PID); uid >= 0 {
		text += ", " + process.UserName(uid)
	}
	return text + ")"
}

// loneSwitch is the [mig.Switch] of one GPU.
type loneSwitch struct {
	helper.Lone
	users func() ([]string, error)
}

func (s loneSwitch) MIGMode(context.Context, string) (nvml.MIGMode, error) { return s.Lone.MIGMode() }

func (s loneSwitch) SetMIGMode(_ context.Context, _ string, on bool) error {
	return s.Lone.SetMIGMode(on)
}

func (s loneSwitch) Users(context.Context, string) ([]string, error) { return s.users() }
