package main

import (
	"errors"
	"testing"
)

// Only a whole instance without a user is tried, and of the GPU that was asked for.
func TestUnusedInstance(t *testing.T) {
	profiles := []migProfile{{Name: "1g.10gb"}, {Name: "3g.40gb"}}
	with := func(instances ...migInstance) divided {
		return divided{UUID: "GPU-a", MIG: true, Profiles: profiles, Instances: instances}
	}
	free := migInstance{UUID: "MIG-a", Profile: "1g.10gb", Total: 9 * gib}
	used, part := free, free
	used.Users, part.Profile = 1, "1c.3g.40gb"
	const none, mode = "no GPU in MIG mode has a whole instance that nobody uses, and this test makes none", "no GPU is in MIG mode, and this test turns it on nowhere"
	for name, c := range map[string]struct {
		gpus []divided
		gpu  string
		want string
	}{
		"free":         {[]divided{with(used, part, free)}, "", ""},
		"used":         {[]divided{with(used)}, "", none},
		"part":         {[]divided{with(part)}, "", none},
		"none":         {[]divided{with()}, "", none},
		"another GPU":  {[]divided{with(free), with(used)}, "1", none},
		"without mode": {[]divided{{UUID: "GPU-a", Profiles: profiles}}, "", mode},
	} {
		tr := &trial{bench: &bench{options: options{gpu: c.gpu}}}
		_, got, err := tr.unused(c.gpus)
		var why skipError
		if c.want == "" && (err != nil || got != free) || c.want != "" && (!errors.As(err, &why) || why.why != c.want) {
			t.Errorf("%s: %+v, %v, want %q", name, got, err, c.want)
		}
	}
}

// What was made, taken away, or changed its place or mode is noticed; how many use an instance is not.
func TestSameInstances(t *testing.T) {
	one := migInstance{UUID: "MIG-a", Profile: "1g.10gb"}
	before := []divided{{UUID: "GPU-a", MIG: true, Instances: []migInstance{one}}}
	busy, other := one, one
	busy.Users, other.UUID = 1, "MIG-b"
	for name, c := range map[string]struct {
		after divided
		want  bool
	}{
		"the same": {divided{UUID: "GPU-a", MIG: true, Instances: []migInstance{busy}}, true},
		"another":  {divided{UUID: "GPU-a", MIG: true, Instances: []migInstance{other}}, false},
		"more":     {divided{UUID: "GPU-a", MIG: true, Instances: []migInstance{one, other}}, false},
		"fewer":    {divided{UUID: "GPU-a", MIG: true}, false},
		"the mode": {divided{UUID: "GPU-a", Instances: []migInstance{one}}, false},
	} {
		if got := sameInstances(before, []divided{c.after}); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
