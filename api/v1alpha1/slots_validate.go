package v1alpha1

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"
)

// ShareOf returns the share that a container uses, or nil for none.
func (r *PodRequest) ShareOf(container string) *ShareRequired {
	i := slices.IndexFunc(r.Shares, func(s ShareRequired) bool { return slices.Contains(s.Containers, container) })
	if i < 0 {
		return nil
	}
	return &r.Shares[i]
}

// Share returns the share of that name, or nil for none.
func (a *PodAssignment) Share(name string) *ShareAssigned {
	i := slices.IndexFunc(a.Shares, func(s ShareAssigned) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &a.Shares[i]
}

// Answers returns an error that says how an assignment differs from the request of the
// pod of that UID: a missing or an additional share, or another size or kind.
func (a *PodAssignment) Answers(pod string, r *PodRequest) error {
	if a.Pod != pod {
		return fmt.Errorf("the assignment was made for pod %s, not for %s", a.Pod, pod)
	}
	if len(a.Shares) != len(r.Shares) {
		return fmt.Errorf("the assignment has %d shares, the request %d", len(a.Shares), len(r.Shares))
	}
	for i := range r.Shares {
		asked := &r.Shares[i]
		given := a.Share(asked.Name)
		if given == nil {
			return fmt.Errorf("share %q has no GPU in the assignment", asked.Name)
		}
		if err := given.answers(asked); err != nil {
			return fmt.Errorf("share %q: %w", asked.Name, err)
		}
	}
	return nil
}

func (s *ShareAssigned) answers(asked *ShareRequired) error {
	switch {
	case !slices.Equal(s.Containers, asked.Containers):
		return fmt.Errorf("the assignment names containers %q, the request %q", s.Containers, asked.Containers)
	case len(s.GPUs) != asked.GPUs:
		return fmt.Errorf("the assignment has %d GPUs, the request %d", len(s.GPUs), asked.GPUs)
	case s.Whole != asked.Whole:
		return fmt.Errorf("the assignment is for %s, the request for %s", kindOf(s.Whole), kindOf(asked.Whole))
	case !s.Whole && *s.Config != *asked.Config:
		return fmt.Errorf("the assignment has the configuration %+v, the request %+v", *s.Config, *asked.Config)
	}
	for _, g := range s.GPUs {
		if !s.Whole && (g.Cores != asked.Cores || asked.Memory != 0 && g.Memory != asked.Memory) {
			return fmt.Errorf("the assignment has %d bytes and %d cores of GPU %s, the request %d bytes and %d cores",
				g.Memory, g.Cores, g.UUID, asked.Memory, asked.Cores)
		}
	}
	return nil
}

func (r *PodRequest) validate() error {
	if err := checkVersion(r.Version, len(r.Shares), maxAskedShares, "shares"); err != nil {
		return err
	}
	var users uses
	for i := range r.Shares {
		s := &r.Shares[i]
		if err := users.add(s.Name, s.Containers); err != nil {
			return err
		}
		if err := s.validate(); err != nil {
			return fmt.Errorf("share %q: %w", s.Name, err)
		}
	}
	return nil
}

// Bounds of selectors: the API server's for one request of a claim.
const (
	maxSelectors     = 32
	maxSelectorBytes = 10 << 10
)

func (s *ShareRequired) validate() error {
	switch {
	case s.GPUs < 1 || s.GPUs > MaxGPUs:
		return fmt.Errorf("%d GPUs: ask for 1 to %d", s.GPUs, MaxGPUs)
	case s.Cores < 0 || s.Cores > MaxCores:
		return fmt.Errorf("%d cores: ask for 0 to %d", s.Cores, MaxCores)
	case len(s.Selectors) > maxSelectors:
		return fmt.Errorf("%d selectors: give at most %d", len(s.Selectors), maxSelectors)
	}
	for _, expression := range s.Selectors {
		if expression == "" || len(expression) > maxSelectorBytes {
			return fmt.Errorf("a selector has 1 to %d bytes", maxSelectorBytes)
		}
	}
	return s.validateAmounts()
}

func (s *ShareRequired) validateAmounts() error {
	switch {
	case s.Part != nil && (s.Memory != 0 || s.Part.Of == 0 || s.Part.Of >= s.Part.In):
		return fmt.Errorf("memory %d and part %d/%d: give only one of them, and a part between 0 and 1", s.Memory, s.Part.Of, s.Part.In)
	case s.Whole && (s.Memory != 0 || s.Part != nil || s.Cores != 0):
		return fmt.Errorf("a request for whole GPUs must not set memory or cores")
	}
	if err := checkConfig(s.Whole, s.Config, s.Cores); err != nil || s.Whole {
		return err
	}
	return s.Config.checkSlotted()
}

// checkSlotted returns an error for what needs a claim, because nobody who counts slots counts it: a GPU's form other than
// shared, and memory of the host.
func (c *ShareConfig) checkSlotted() error {
	switch {
	case c.Backend != BackendSlice && c.Backend != "":
		return fmt.Errorf("backend %s needs a claim", c.Backend)
	case c.Swap || !c.Kept.IsZero() || c.SuspendAfter != 0:
		return fmt.Errorf("a share that leaves its GPU needs a claim")
	}
	return nil
}

func (a *PodAssignment) validate() error {
	if err := checkVersion(a.Version, len(a.Shares), maxPodShares, "shares"); err != nil {
		return err
	}
	if a.Pod == "" || len(a.Pod) > maxName {
		return fmt.Errorf("pod %q is not a UID", a.Pod)
	}
	var users uses
	for i := range a.Shares {
		s := &a.Shares[i]
		if err := users.add(s.Name, s.Containers); err != nil {
			return err
		}
		if err := s.validate(); err != nil {
			return fmt.Errorf("share %q: %w", s.Name, err)
		}
	}
	return nil
}

func (s *ShareAssigned) validate() error {
	if err := validateGPUs(s.GPUs); err != nil {
		return err
	}
	for _, g := range s.GPUs {
		if err := checkConfig(s.Whole, s.Config, g.Cores); err != nil {
			return fmt.Errorf("GPU %s: %w", g.UUID, err)
		}
	}
	return nil
}

func checkVersion(version, n, limit int, of string) error {
	if version != annotationVersion {
		return fmt.Errorf("version %d is not %d", version, annotationVersion)
	}
	if n < 1 || n > limit {
		return fmt.Errorf("%d %s: give 1 to %d", n, of, limit)
	}
	return nil
}

// checkConfig wants the complete configuration of a share, and none of whole
// GPUs.
func checkConfig(whole bool, config *ShareConfig, cores int) error {
	switch {
	case whole && config != nil:
		return fmt.Errorf("a whole GPU must not have a configuration")
	case whole:
		return nil
	case config == nil:
		return fmt.Errorf("a share needs a configuration")
	}
	return config.Validate(cores)
}

// uses finds names and containers that occur twice, and names that no container can have: a node's agent tells of shares by name, and
// others could be many times as long where they are encoded.
type uses struct {
	names, containers []string
}

func (u *uses) add(name string, containers []string) error {
	switch {
	case len(validation.IsDNS1123Label(name)) > 0:
		return fmt.Errorf("share %q: it is named as a container is, with 1 to %d of a-z, 0-9 and -", name, maxName)
	case slices.Contains(u.names, name):
		return fmt.Errorf("share %q is listed twice", name)
	case len(containers) == 0:
		return fmt.Errorf("share %q has no container", name)
	}
	u.names = append(u.names, name)
	for _, c := range containers {
		if len(validation.IsDNS1123Label(c)) > 0 {
			return fmt.Errorf("share %q: container %q: a name has 1 to %d of a-z, 0-9 and -", name, c, maxName)
		}
		if slices.Contains(u.containers, c) {
			return fmt.Errorf("container %q is listed twice", c)
		}
		u.containers = append(u.containers, c)
	}
	return nil
}

// kindOf names what a share is of in messages.
func kindOf(whole bool) string {
	if whole {
		return "whole GPUs"
	}
	return "shares"
}
