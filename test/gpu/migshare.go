package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// migShare runs programs in a share on an instance that is there and that nobody uses. It makes none and changes no mode.
func migShare(t *trial) error {
	if err := t.notShared(); err != nil {
		return err
	}
	before, err := t.divided(t.natively())
	if err != nil {
		return err
	}
	on, instance, err := t.unused(before)
	if err != nil {
		return err
	}
	t.note("%s with %s, among %d instances", instance.Profile, bytesText(instance.Total), len(on.Instances))
	whole := flags{gpu: on.UUID, profile: instance.Profile}
	err = t.seesItself(on, instance, whole)
	if err == nil {
		err = t.fillsInstance(instance, whole)
	}
	if err == nil {
		part := whole
		part.backend, part.memory = "slice", instance.Total/2/(64*mib)*(64*mib)
		err = t.holds(part)
	}
	if err != nil {
		return err
	}
	after, err := t.divided(t.natively())
	if err == nil && !sameInstances(before, after) {
		err = differ("the instances are %v and were %v", names(after), names(before))
	}
	return err
}

// notShared skips the case where somebody else's agent serves the machine: it may make instances.
func (t *trial) notShared() error {
	if t.simgpu == "" && exists("/run/divvy/agent.sock") {
		return skip("an agent of this machine serves the GPUs, and may make instances")
	}
	return nil
}

// unused chooses an instance: a whole one, without a process, of the GPU that was asked for.
func (t *trial) unused(gpus []divided) (divided, migInstance, error) {
	inMode := 0
	for i, g := range gpus {
		if !g.MIG || t.options.gpu != "" && t.options.gpu != strconv.Itoa(i) {
			continue
		}
		inMode++
		for _, one := range g.Instances {
			named := func(p migProfile) bool { return p.Name == one.Profile }
			if one.Users == 0 && one.Total >= 512*mib && slices.ContainsFunc(g.Profiles, named) {
				return g, one, nil
			}
		}
	}
	if inMode == 0 {
		return divided{}, migInstance{}, skip("no GPU is in MIG mode, and this test turns it on nowhere")
	}
	return divided{}, migInstance{}, skip("no GPU in MIG mode has a whole instance that nobody uses, and this test makes none")
}

// seesItself compares what a program in the share is shown with the profile and the instance.
func (t *trial) seesItself(on divided, instance migInstance, f flags) error {
	inside, err := t.divided(t.share(f))
	if err != nil {
		return err
	}
	t.compare("GPUs and instances", fmt.Sprintf("%d", len(on.Instances)), strings.Join(names(inside), ", "))
	if len(inside) != 1 || len(inside[0].Instances) != 1 || inside[0].Instances[0].Profile != instance.Profile {
		return differ("the share is shown %v, want one %s", names(inside), instance.Profile)
	}
	own := inside[0].Instances[0].UUID
	if !slices.ContainsFunc(on.Instances, func(i migInstance) bool { return i.UUID == own && i.Users == 0 }) {
		return differ("the share is on an instance that was not there, or that somebody uses")
	}
	at := slices.IndexFunc(on.Profiles, func(p migProfile) bool { return p.Name == instance.Profile })
	var have multiprocessors
	if err := t.ask(&have, t.share(f), t.gpuprobe(), "sms"); err != nil {
		return err
	}
	want := on.Profiles[at].SMs
	t.compare("multiprocessors", fmt.Sprint(want), fmt.Sprint(have.Count))
	if have.Count != int(want) {
		return differ("%d multiprocessors, and the profile has %d", have.Count, want)
	}
	return nil
}

// fillsInstance allocates in the share until it is refused, which must be within the instance's memory, and runs kernels.
func (t *trial) fillsInstance(instance migInstance, f flags) error {
	o, err := t.call(t.share(f), t.gpubench(), "alloc", "--bytes", "64Mi", "--count", "4000")
	if err != nil {
		return err
	}
	var a allocated
	if err := o.last(&a); err != nil {
		return err
	}
	t.compare("memory and allocated", bytesText(instance.Total), bytesText(a.Allocated))
	if a.Code != outOfMemory || a.Allocated > instance.Total || a.Allocated < instance.Total/2 || a.Total > instance.Total {
		return differ("%s of %s were allocated, then %s", bytesText(a.Allocated), bytesText(instance.Total), a.Result)
	}
	var ran struct{ Result string }
	return t.ask(&ran, t.share(f), t.gpubench(), "spin", "--count", "20", "--ns", "1000000")
}

func names(gpus []divided) (all []string) {
	for i, g := range gpus {
		for _, one := range g.Instances {
			all = append(all, fmt.Sprintf("GPU %d: %s", i, one.Profile))
		}
	}
	return all
}

// sameInstances reports whether all GPUs have the same instances, by UUIDs, and the same mode.
func sameInstances(a, b []divided) bool {
	return slices.EqualFunc(a, b, func(a, b divided) bool {
		return a.UUID == b.UUID && a.MIG == b.MIG &&
			slices.EqualFunc(a.Instances, b.Instances, func(a, b migInstance) bool { return a.UUID == b.UUID && a.Profile == b.Profile })
	})
}
