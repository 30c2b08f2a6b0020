package edits

import (
	"slices"
	"strings"
	"testing"
)

func TestEnvironment(t *testing.T) {
	prepend := Edits{Env: []Env{{Name: "LD_LIBRARY_PATH", Value: "/t", Prepend: true}}}
	replace := Edits{Env: []Env{{Name: "A", Value: "1"}, {Name: "B", Value: "2"}}}
	tests := []struct {
		name      string
		edits     Edits
		env, want []string
	}{
		{"nothing to edit", Edits{}, []string{"A=0"}, []string{"A=0"}},
		{"absent", prepend, []string{"A=0"}, []string{"A=0", "LD_LIBRARY_PATH=/t"}},
		{"present", prepend, []string{"LD_LIBRARY_PATH=/x:/y", "A=0"}, []string{"LD_LIBRARY_PATH=/t:/x:/y", "A=0"}},
		// An empty list must not become "/t:", which means the working directory too.
		{"present and empty", prepend, []string{"LD_LIBRARY_PATH="}, []string{"LD_LIBRARY_PATH=/t"}},
		// Without the variable, execvp(3) looks in two folders of its own.
		{"no PATH", Edits{Env: []Env{{Name: "PATH", Value: "/t", Prepend: true}}}, nil, []string{"PATH=/t:/bin:/usr/bin"}},
		{"several of one name", replace, []string{"A=x", "C=", "A=y"}, []string{"A=1", "C=", "B=2"}},
		{"longer name", replace, []string{"AB=x"}, []string{"AB=x", "A=1", "B=2"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			before := slices.Clone(test.env)
			if got := test.edits.Environment(test.env); !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if !slices.Equal(test.env, before) {
				t.Errorf("the caller's environment was changed to %q", test.env)
			}
		})
	}
}

// Nothing that names a file or has libraries loaded is taken from a user for a worker of another one.
func TestDriverVariables(t *testing.T) {
	env := []string{
		"CUDA_LAUNCH_BLOCKING=1", "CUDA_LAUNCH_BLOCKING=0", "LD_PRELOAD=/x.so", "LD_LIBRARY_PATH=/x", "CUDA_INJECTION64_PATH=/x.so", "CUDA_CACHE_PATH=/root",
		"CUDA_LOG_FILE=/etc/shadow", "CUDA_COREDUMP_FILE=/x", "CUDA_MPS_PIPE_DIRECTORY=/x", "HOME=/root", "PATH=/x", "CUDA_MODULE_LOADING", "cuda_visible_devices=1",
		"CUDA_DEVICE_ORDER=a\x00b", "CUDA_VISIBLE_DEVICES=" + strings.Repeat("0,", mostOfVariable), "CUDA_MODULE_LOADING=LAZY", "CUDA_MODULE_LOADING_X=1", "=CUDA_DISABLE_JIT=1", "GCONV_PATH=/x",
	}
	if got, want := DriverVariables(env), []string{"CUDA_LAUNCH_BLOCKING=1", "CUDA_MODULE_LOADING=LAZY"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
