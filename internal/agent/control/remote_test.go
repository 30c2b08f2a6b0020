package control

import (
	"reflect"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
)

func TestRemote(t *testing.T) {
	var nobody *Remote
	long := strings.Repeat("x", longestWord+1)
	for name, c := range map[string]struct {
		remote *Remote
		fault  string
		text   string
	}{
		"a command of this host": {nobody, "", ""},
		"a client":               {&Remote{Client: "ada", Address: "10.0.0.7", Host: "laptop", User: "a"}, "", "ada on laptop"},
		"a client without words": {&Remote{Client: "ada", Address: "10.0.0.7"}, "", "ada on 10.0.0.7"},
		"a client's escapes":     {&Remote{Client: "ada", Host: "\x1b[2J"}, "", `ada on \x1b[2J`},
		"nobody's":               {&Remote{Host: "laptop"}, "is a client's", ""},
		"a long word":            {&Remote{Client: "ada", User: long}, "256 bytes", ""},
	} {
		err := c.remote.Fault()
		if (err == nil) != (c.fault == "") || err != nil && (CodeOf(err) != CodeInvalid || !strings.Contains(err.Error(), c.fault)) {
			t.Errorf("%s: %v, want %q", name, err, c.fault)
		}
		if c.text != "" && c.remote.Text() != c.text {
			t.Errorf("%s is %q", name, c.remote.Text())
		}
	}
}

// GPUs of a listing are what the allocator has to know, and name no user.
func TestAllocatable(t *testing.T) {
	l := &Listing{
		GPUs: []GPU{
			{Index: 0, UUID: "GPU-0", Name: "A100", Capacity: 80, Granted: 24, Cores: 30, ContextBytes: 4, Form: v1alpha1.BackendSlice, Replicas: 4},
			{Index: 1, UUID: "GPU-1", Name: "A100", Capacity: 80, Granted: 80, Form: v1alpha1.BackendRemote},
			{Index: 2, UUID: "GPU-2", Capacity: 80, Fault: "it fell off the bus"},
			{Index: 3, UUID: "GPU-3", Capacity: 80, MIG: true},
			{Index: 4, UUID: "GPU-4", Capacity: 80},
		},
		Tenants: []Tenant{
			{Name: "secret", User: "bea", Shares: []Share{{UUID: "GPU-0"}, {UUID: "GPU-1", Whole: true}}},
			{Name: "other", User: "bea", Shares: []Share{{UUID: "GPU-0"}}},
		},
		Waiting: []Waiting{{User: "bea", Keeps: []int{4}}},
	}
	want := []alloc.GPU{
		{Index: 0, UUID: "GPU-0", Model: "A100", Capacity: 80, Granted: 24, Cores: 30, ContextBytes: 4, Form: "slice", Slots: 4, Tenants: 2},
		{Index: 1, UUID: "GPU-1", Model: "A100", Capacity: 80, Granted: 80, Form: "slice", Tenants: 1, Fault: "somebody has the whole GPU"},
		{Index: 2, UUID: "GPU-2", Capacity: 80, Fault: "it fell off the bus"},
		{Index: 3, UUID: "GPU-3", Capacity: 80, Form: "mig"},
		{Index: 4, UUID: "GPU-4", Capacity: 80, Fault: "it is kept for who has waited longer"},
	}
	if got := l.Allocatable(); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
}
