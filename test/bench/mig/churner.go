package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"

	"github.com/divvy-gpu/divvy/internal/mig"
	"github.com/divvy-gpu/divvy/internal/nvml"
)

// churner is a process of mig.churn. One NVML can be open in a process.
type churner struct {
	role, folder, library string
	seed                  uint64
}

// mostFailures is after how many refusals in a row a process says that nothing can be done.
const mostFailures = 200

// gpu stands for the GPU's UUID, which no call of these processes needs.
const gpu = "gpu"

func (c churner) run() error {
	opened, err := nvml.Open(c.library)
	if err != nil {
		return err
	}
	l, ctx := mig.Library{NVML: opened, Index: map[string]int{gpu: 0}}, context.Background()
	mode, err := l.MIGMode(ctx, gpu)
	if err == nil && !mode.Current {
		err = opened.SetMIGMode(0, true)
	}
	if err != nil {
		return err
	}
	profiles, err := l.MIGProfiles(ctx, gpu)
	if err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(c.seed, 3))
	if c.role == "tool" {
		return c.tool(ctx, l, profiles, random)
	}
	return c.agent(ctx, l, profiles, random)
}

// foreign is where the other tool lists its instances.
func (c churner) foreign() string { return filepath.Join(c.folder, "foreign.json") }

func (c churner) listed() (all []nvml.MIGInstance, err error) {
	text, err := os.ReadFile(c.foreign())
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the other tool's list: %w", err)
	}
	return all, json.Unmarshal(text, &all)
}

// tool makes one instance where there is room, or ends one of its own.
func (c churner) tool(ctx context.Context, l mig.Library, profiles []nvml.MIGProfile, random *rand.Rand) error {
	mine, err := c.listed()
	if err != nil {
		return err
	}
	if len(mine) > 0 && random.IntN(2) == 0 {
		at := random.IntN(len(mine))
		if mine[at].Compute, err = away(ctx, l, mine[at]); err == nil {
			mine = slices.Delete(mine, at, at+1)
		}
		return c.list(mine) // an error is a fault that was meant for the other process
	}
	profile := profiles[random.IntN(len(profiles))]
	made := nvml.MIGInstance{Profile: profile.ID, Placement: profile.Placements[random.IntN(len(profile.Placements))]}
	if made.ID, err = l.CreateMIGInstance(ctx, gpu, profile.ID, made.Placement); err == nil {
		if compute, err := l.CreateMIGCompute(ctx, gpu, made.ID); err == nil {
			made.Compute = []nvml.MIGCompute{compute}
		}
		mine = append(mine, made)
	}
	return c.list(mine) // an error says that there is no room
}

// away takes an instance away, and returns what is left of its compute instances.
func away(ctx context.Context, l mig.Library, i nvml.MIGInstance) (left []nvml.MIGCompute, err error) {
	for n, compute := range i.Compute {
		if err := l.DestroyMIGCompute(ctx, gpu, i.ID, compute.ID); err != nil {
			return i.Compute[n:], err
		}
	}
	return nil, l.DestroyMIGInstance(ctx, gpu, i.ID)
}

func (c churner) list(mine []nvml.MIGInstance) error {
	text, err := json.Marshal(mine)
	if err != nil {
		return fmt.Errorf("write the other tool's list: %w", err)
	}
	return os.WriteFile(c.foreign(), text, 0o600)
}

// agent finishes what the process before it began, tells what is wrong then, and makes changes until it is killed.
func (c churner) agent(ctx context.Context, l mig.Library, profiles []nvml.MIGProfile, random *rand.Rand) error {
	b, err := mig.Open(filepath.Join(c.folder, "mig.json"), l)
	if err != nil {
		return err
	}
	gone, err := b.Recover(ctx)
	for i := 0; err != nil && i < len(faulty); i++ { // faults may still be to come
		_, err = b.Recover(ctx)
	}
	if err != nil {
		return err
	}
	for _, e := range gone {
		fmt.Println("fault gone:", e)
	}
	if err := c.compare(ctx, l, b); err != nil {
		return err
	}
	for failed := 0; ; failed++ {
		if failed == mostFailures {
			fmt.Println("idle")
			failed = 0
		}
		entries := b.Entries()
		if len(entries) > 0 && random.IntN(2) == 0 {
			err = b.Destroy(ctx, entries[random.IntN(len(entries))].UUID)
		} else {
			profile := profiles[random.IntN(len(profiles))]
			at := profile.Placements[random.IntN(len(profile.Placements))]
			_, err = b.Create(ctx, gpu, profile, at, originAt(at))
		}
		if err == nil {
			fmt.Println("change")
			failed = 0
		}
	}
}

// originAt is for whom the instances at a placement are.
func originAt(at nvml.MIGPlacement) string {
	if at.Start%2 == 1 {
		return "layout"
	}
	return "share"
}

// compare tells what the driver has and neither the book nor the other tool's list, and the other way round.
func (c churner) compare(ctx context.Context, l mig.Library, b *mig.Book) error {
	others, err := c.listed()
	if err != nil {
		return err
	}
	found, err := l.MIGInstances(ctx, gpu)
	if err != nil {
		return err
	}
	var taken uint32
	for _, i := range found {
		mask := (uint32(1)<<i.Placement.Size - 1) << i.Placement.Start
		if taken&mask != 0 {
			fmt.Println("fault overlap:", i)
		}
		taken |= mask
		ours := slices.ContainsFunc(b.Entries(), func(e mig.Entry) bool {
			return e.ID == i.ID && len(i.Compute) == 1 && i.Compute[0].UUID == e.UUID
		})
		if theirs := contains(others, i); ours == theirs {
			fmt.Println("fault orphan, or of two:", i)
		}
	}
	for _, e := range b.Entries() {
		if e.Origin != originAt(e.Placement) {
			fmt.Println("fault origin:", e)
		}
	}
	for _, o := range others {
		if !contains(found, o) {
			fmt.Println("fault touched:", o)
		}
	}
	if len(found) != len(others)+len(b.Entries()) {
		fmt.Println("fault count:", found, others, b.Entries())
	}
	return nil
}

func contains(all []nvml.MIGInstance, one nvml.MIGInstance) bool {
	return slices.ContainsFunc(all, func(i nvml.MIGInstance) bool { return fmt.Sprint(i) == fmt.Sprint(one) })
}
