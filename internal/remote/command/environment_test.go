package command

import (
	"slices"
	"testing"
)

func TestPass(t *testing.T) {
	env := []string{"PATH=/bin", "HOME=/home/ada", "LC_ALL=C", "SECRET=1", "NCCL_DEBUG=INFO", "NCCL_ALGO=Ring", "DIVVY_REMOTE=strict", "EMPTY="}
	tests := []struct {
		name  string
		asked []string
		want  []string // nil for an error
	}{
		{"the usual ones", nil, []string{"PATH=/bin", "LC_ALL=C"}},
		{"one by name", []string{"SECRET"}, []string{"PATH=/bin", "LC_ALL=C", "SECRET=1"}},
		{"by prefix", []string{"NCCL_*"}, []string{"PATH=/bin", "LC_ALL=C", "NCCL_DEBUG=INFO", "NCCL_ALGO=Ring"}},
		{"with a value", []string{"SECRET=2", "NEW=a=b", "PATH="}, []string{"LC_ALL=C", "SECRET=2", "NEW=a=b", "PATH="}},
		{"empty here", []string{"EMPTY"}, []string{"PATH=/bin", "LC_ALL=C", "EMPTY="}},
		{"not set here", []string{"NONE"}, []string{"PATH=/bin", "LC_ALL=C"}},
		{"the host's", []string{"HOME"}, nil},
		{"the host's, with a value", []string{"XDG_RUNTIME_DIR=/x"}, nil},
		{"Divvy's", []string{"DIVVY_REMOTE"}, nil},
		{"no name", []string{"=x"}, nil},
		{"nothing", []string{""}, nil},
		{"a pattern with a value", []string{"A*=x"}, nil},
		{"a star inside", []string{"A*B"}, nil},
		{"another pattern", []string{"A[BC]"}, nil},
	}
	for _, test := range tests {
		got, err := Pass(env, test.asked)
		if (err != nil) != (test.want == nil) || !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, %v", test.name, got, err)
		}
	}
}

// A pattern of everything passes everything but what the host sets.
func TestPassAll(t *testing.T) {
	got, err := Pass([]string{"A=1", "HOME=/x", "LD_PRELOAD=/y"}, []string{"*"})
	if err != nil || !slices.Equal(got, []string{"A=1", "LD_PRELOAD=/y"}) {
		t.Errorf("%q, %v", got, err)
	}
}

func TestAccept(t *testing.T) {
	env := []string{"PATH=/bin", "HOME=/evil", "DIVVY_RUNDIR=/evil", "A=1", "AB=2", "novalue", "=x", "A=3"}
	tests := []struct {
		patterns, accepted, dropped []string
	}{
		{nil, []string{"PATH=/bin"}, []string{"HOME", "DIVVY_RUNDIR", "A", "AB", "novalue", "", "A"}},
		{[]string{"A"}, []string{"PATH=/bin", "A=1", "A=3"}, []string{"HOME", "DIVVY_RUNDIR", "AB", "novalue", ""}},
		{[]string{"A*"}, []string{"PATH=/bin", "A=1", "AB=2", "A=3"}, []string{"HOME", "DIVVY_RUNDIR", "novalue", ""}},
		{[]string{"*"}, []string{"PATH=/bin", "A=1", "AB=2", "A=3"}, []string{"HOME", "DIVVY_RUNDIR", "novalue", ""}},
	}
	for _, test := range tests {
		accepted, dropped := Accept(env, test.patterns)
		if !slices.Equal(accepted, test.accepted) || !slices.Equal(dropped, test.dropped) {
			t.Errorf("%q: %q and %q", test.patterns, accepted, dropped)
		}
	}
}
