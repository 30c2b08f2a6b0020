package mig

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/nvml"
)

// switching is a GPU whose mode can be changed.
type switching struct {
	mode nvml.MIGMode
	// reset is needed before a mode takes effect.
	reset bool
	// tells is a driver that says so.
	tells  bool
	users  []string
	asked  []bool
	refuse error
}

func (s *switching) MIGMode(context.Context, string) (nvml.MIGMode, error) { return s.mode, nil }
func (s *switching) Users(context.Context, string) ([]string, error)       { return s.users, nil }

func (s *switching) SetMIGMode(_ context.Context, _ string, on bool) error {
	s.asked = append(s.asked, on)
	if s.refuse != nil {
		return s.refuse
	}
	asked := s.mode.Current != on
	s.mode.Pending = on
	if s.reset && asked && s.tells {
		return nvml.ErrReset
	}
	if !s.reset {
		s.mode.Current = on
	}
	return nil
}

func TestSetMode(t *testing.T) {
	on, off := nvml.MIGMode{Current: true, Pending: true}, nvml.MIGMode{}
	for name, c := range map[string]struct {
		gpu       switching
		on        bool
		instances int
		want      error
		says      string
		after     nvml.MIGMode
		asked     int
	}{
		"at once":                       {gpu: switching{}, on: true, after: on, asked: 1},
		"off":                           {gpu: switching{mode: on}, after: off, asked: 1},
		"as it is":                      {gpu: switching{mode: on}, on: true, after: on},
		"a reset takes it back":         {gpu: switching{reset: true}, on: true, want: ErrReset, after: off, asked: 2},
		"a reset that the driver tells": {gpu: switching{reset: true, tells: true}, on: true, want: ErrReset, asked: 2},
		"an end that was pending":       {gpu: switching{reset: true, mode: nvml.MIGMode{Current: true}}, on: true, after: on, asked: 1},
		"instances":                     {gpu: switching{mode: on}, instances: 2, want: ErrUsed, says: "2 instances", after: on},
		"a monitor":                     {gpu: switching{users: []string{"nv-hostengine (pid 7, root)"}}, on: true, want: ErrUsed, says: "nv-hostengine (pid 7, root)", after: off},
		"a driver that refuses":         {gpu: switching{refuse: errFault}, on: true, want: errFault, after: off, asked: 1},
		"another tool's pending mode":   {gpu: switching{mode: nvml.MIGMode{Pending: true}}, on: true, after: on, asked: 1},
		"a pending mode is taken back":  {gpu: switching{mode: nvml.MIGMode{Pending: true}}, after: off, asked: 1},
	} {
		gpu := c.gpu
		err := SetMode(t.Context(), &gpu, "a", c.on, c.instances)
		if !errors.Is(err, c.want) || (c.want == nil) != (err == nil) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v does not say %q", name, err, c.says)
		}
		if gpu.mode != c.after || len(gpu.asked) != c.asked {
			t.Errorf("%s: the mode is %+v after %v, want %+v", name, gpu.mode, gpu.asked, c.after)
		}
	}
}
